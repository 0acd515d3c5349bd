from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def describe(model, group):
    model = FSDP(model, process_group=group)
    if model.check_is_root():
        print(model.sharding_strategy, model.world_size)
    return model.process_group
