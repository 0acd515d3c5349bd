from torch.distributed.fsdp import FSDPModule
from torch.nn import DataParallel
from torch.nn.parallel import DistributedDataParallel as DDP

from fsdp2_sharding import shard_model


def wrap(model, mode):
    if mode == "fsdp":
        wrapped: FSDPModule = shard_model(model)
    else:
        wrapped = DDP(model)
    return wrapped


def unwrap(model):
    return (
        getattr(model, "module", model)
        if isinstance(model, (FSDPModule, DDP))
        else model
    )


def unwrap_any(model):
    while isinstance(model, (DDP, DataParallel)):
        model = model.module
    return model


def unwrap_again(model):
    if isinstance(model, (FSDPModule, DDP)):
        # TODO(fsdp-migrate FM307): return the model where it is an `FSDPModule`, and go
        #   on for other wrappers only
        return unwrap_again(model.module)
    return model


def unwrap_all(model):
    return model


def unwrap_sharded(model):
    if model is not None and isinstance(model, FSDPModule):
        return model
    return model


def depth(model, mode):
    model = wrap(model, mode)
    names = [unwrap(model).name, unwrap_any(model).name, unwrap_sharded(model).name]
    names += [unwrap_again(model).name, unwrap_all(model).name]
    return len(getattr(model, "module", model).blocks), names
