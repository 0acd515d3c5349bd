from torch.distributed.fsdp import FSDPModule


def is_sharded(model):
    return isinstance(model, FSDPModule)
