from torch.distributed.fsdp import fully_shard


def unwrap(module):
    if hasattr(module, "_fsdp_wrapped_module"):
        return module._fsdp_wrapped_module
    return module


def unwrap_always(module):
    # TODO(fsdp-migrate FM516): if this is a sharded model, rewrite this by hand: an
    #   FSDP2 model does not have it
    return module._fsdp_wrapped_module


def shard(model):
    return fully_shard(model)
