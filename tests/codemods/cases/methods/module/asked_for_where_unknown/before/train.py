from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def unwrap(module):
    if hasattr(module, "_fsdp_wrapped_module"):
        return module._fsdp_wrapped_module
    return module


def unwrap_always(module):
    return module._fsdp_wrapped_module


def shard(model):
    return FSDP(model)
