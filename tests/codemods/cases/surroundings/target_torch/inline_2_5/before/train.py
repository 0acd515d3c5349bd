from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.parallel import DistributedDataParallel as DDP


def is_wrapped(model):
    return isinstance(model, (DDP, FSDP))


def is_sharded(model):
    return type(model) is FSDP or model.__class__ == FSDP


def is_plain(model):
    return type(model) is not FSDP


def is_kind(cls):
    return issubclass(cls, FSDP)


def units(model):
    return [m for m in model.modules() if isinstance(m, FSDP) and m is not model]
