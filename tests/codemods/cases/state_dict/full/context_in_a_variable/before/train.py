import torch
from torch.distributed.fsdp import (
    FullyShardedDataParallel as FSDP,
)
from torch.distributed.fsdp import (
    StateDictType,
)


def save(model, path, sharded):
    model = FSDP(model)
    context = FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT)
    with context:
        torch.save(model.state_dict(), path)
