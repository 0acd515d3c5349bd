from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def prepare(model, accelerator) -> FSDP | FSDPModule:
    if isinstance(model, (FSDP, FSDPModule)):
        return model
    fsdp_plugin = accelerator.state.fsdp_plugin
    if fsdp_plugin.fsdp_version == 1:
        model = FSDP(model)
    elif fsdp_plugin.fsdp_version == 2:
        fully_shard(model)
    else:
        raise ValueError(fsdp_plugin.fsdp_version)
    return model


def names(model, fsdp_plugin):
    if fsdp_plugin.fsdp_version == 1:
        return [n.replace("_fsdp_wrapped_module.", "") for n in model.state_dict()]
    elif fsdp_plugin.fsdp_version == 2:
        return list(model.state_dict())
