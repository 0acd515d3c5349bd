import torch
from torch.distributed.fsdp import (
    FullStateDictConfig,
    StateDictType,
)
from torch.distributed.fsdp import (
    FullyShardedDataParallel as FSDP,
)


def write(model, path, rank):
    state = model.state_dict()
    if rank == 0:
        torch.save(state, path)


def save(model, path, rank):
    model = FSDP(model)
    config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, config):
        write(model, path, rank)
