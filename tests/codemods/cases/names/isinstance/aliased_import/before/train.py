import torch.distributed.fsdp


def is_sharded(model):
    return isinstance(model, torch.distributed.fsdp.FullyShardedDataParallel)
