import torch
from torch.distributed.fsdp import (
    FullyShardedDataParallel as FSDP,
)
from torch.distributed.fsdp import (
    StateDictType,
)


def save(model, path, kind):
    with FSDP.state_dict_type(model, getattr(StateDictType, kind)):
        torch.save(model.state_dict(), path)
