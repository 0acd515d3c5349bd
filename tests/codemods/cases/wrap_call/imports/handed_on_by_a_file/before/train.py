from compat import FSDPModule
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def kind_of(model):
    if isinstance(model, FSDP):
        return "sharded"
    return "plain"


def is_new(model):
    return isinstance(model, FSDPModule)


def build(model):
    return kind_of(FSDP(model))
