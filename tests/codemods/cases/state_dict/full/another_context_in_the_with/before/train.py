import torch
from torch.distributed.fsdp import (
    FullyShardedDataParallel as FSDP,
)
from torch.distributed.fsdp import (
    StateDictType,
)


def whole(model):
    with torch.no_grad(), FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
        return model.state_dict()
