from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import (
    MixedPrecision,  # for later
    StateDictType,
)
from torch.distributed.fsdp.wrap import enable_wrap


def kind():
    return StateDictType.FULL_STATE_DICT
