from torch.distributed.fsdp import FSDPModule, fully_shard


def prepare(model, accelerator) -> FSDPModule:
    if isinstance(model, FSDPModule):
        return model
    fsdp_plugin = accelerator.state.fsdp_plugin
    if fsdp_plugin.fsdp_version == 2:
        fully_shard(model)
    else:
        raise ValueError(fsdp_plugin.fsdp_version)
    return model


def names(model, fsdp_plugin):
    if fsdp_plugin.fsdp_version == 1:
        raise ValueError("FSDP1 is no longer supported: choose FSDP2")
    elif fsdp_plugin.fsdp_version == 2:
        return list(model.state_dict())
