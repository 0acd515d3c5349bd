from compat import FSDPModule
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def kind_of(model):
    if isinstance(model, FSDP):
        return "sharded"
    return "new" if isinstance(model, FSDPModule) else "plain"


def build(model):
    return kind_of(FSDP(model))
