import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import StateDictType


def resume(module, state):
    model = FSDP(module, use_orig_params=True)
    optimizer = torch.optim.Adam([{"params": model.parameters(), "eps": 0}], lr=1e-3)
    FSDP.set_state_dict_type(model, StateDictType.SHARDED_STATE_DICT)
    optimizer.load_state_dict(FSDP.optim_state_dict_to_load(model, optimizer, state))
    return model, optimizer
