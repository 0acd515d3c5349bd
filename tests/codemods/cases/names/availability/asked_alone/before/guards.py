try:
    from torch.distributed.fsdp import FullyShardedDataParallel
except ImportError:
    FullyShardedDataParallel = None


def check(model):
    if FullyShardedDataParallel is None:
        raise RuntimeError("this torch has no FSDP")
    return model is not None and (
        FullyShardedDataParallel is not None
        and isinstance(model, FullyShardedDataParallel)
    )


def check_either(model, module):
    return isinstance(model, FullyShardedDataParallel) or (
        module is not None and FullyShardedDataParallel is not None
    )
