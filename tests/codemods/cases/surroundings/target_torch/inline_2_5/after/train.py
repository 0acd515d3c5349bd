from torch.distributed._composable.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel as DDP


def is_wrapped(model):
    return isinstance(model, (DDP, FSDPModule))


def is_sharded(model):
    return isinstance(model, FSDPModule) or isinstance(model, FSDPModule)


def is_plain(model):
    return not isinstance(model, FSDPModule)


def is_kind(cls):
    return issubclass(cls, FSDPModule)


def units(model):
    return [m for m in model.modules() if isinstance(m, FSDPModule) and m is not model]
