from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn import DataParallel
from torch.nn.parallel import DistributedDataParallel as DDP


def wrap(model, mode):
    if mode == "fsdp":
        wrapped: FSDP = FSDP(model, use_orig_params=True)
    else:
        wrapped = DDP(model)
    return wrapped


def unwrap(model):
    return model.module if isinstance(model, (FSDP, DDP)) else model


def unwrap_any(model):
    while isinstance(model, (DDP, FSDP, DataParallel)):
        model = model.module
    return model


def unwrap_again(model):
    if isinstance(model, (FSDP, DDP)):
        return unwrap_again(model.module)
    return model


def unwrap_all(model):
    while isinstance(model, FSDP):
        model = model.module
    return model


def unwrap_sharded(model):
    if model is not None and isinstance(model, FSDP):
        return model.module
    return model


def depth(model, mode):
    model = wrap(model, mode)
    names = [unwrap(model).name, unwrap_any(model).name, unwrap_sharded(model).name]
    names += [unwrap_again(model).name, unwrap_all(model).name]
    return len(model.module.blocks), names
