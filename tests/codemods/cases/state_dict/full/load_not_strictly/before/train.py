import torch
from torch.distributed.fsdp import (
    FullyShardedDataParallel as FSDP,
)
from torch.distributed.fsdp import (
    StateDictType,
)


def load(model, path):
    state = torch.load(path)
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
        missing = model.load_state_dict(state, strict=False)
    print(missing, len(state))
