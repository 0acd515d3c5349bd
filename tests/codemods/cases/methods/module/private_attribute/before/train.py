from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def unwrap(model):
    model = FSDP(model)
    return model._fsdp_wrapped_module.config
