from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def prepare(model, optimizer, saved):
    model = FSDP(model)
    return FSDP.optim_state_dict_to_load(model, optimizer, saved)
