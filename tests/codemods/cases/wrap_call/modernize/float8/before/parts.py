from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def by_hand(model):
    model.head = FSDP(model.head)
    model = FSDP(model)
    return model
