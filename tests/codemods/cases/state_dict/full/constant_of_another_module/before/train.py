import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import StateDictType

from settings import full_on_cpu


def save(model, path, rank):
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, full_on_cpu):
        state = model.state_dict()
    if rank == 0:
        torch.save(state, path)
