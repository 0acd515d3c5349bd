from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from fsdp2_sharding import shard_model


def wrap(model: nn.Module, sharded):
    return shard_model(model) if sharded else DDP(model)


def unwrap(model):
    if hasattr(model, "module"):
        return unwrap(model.module)
    return model


def unwrap_all(model):
    while hasattr(model, "module") and model is not None:
        model = model.module
    return model


def names(model, sharded):
    model = wrap(model, sharded)
    inner = model.module if hasattr(model, "module") else model
    return unwrap(model).name, unwrap_all(model).name, inner.name
