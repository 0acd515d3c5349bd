import torch
from torch.distributed.fsdp import (
    FullStateDictConfig,
    StateDictType,
)
from torch.distributed.fsdp import (
    FullyShardedDataParallel as FSDP,
)

# create singleton saving policies to avoid making over and over
save_policy = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)


def save(model, path, rank):
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, save_policy):
        state = model.state_dict()
    if rank == 0:
        torch.save(state, path)


def save_best(model, path, rank):
    with FSDP.state_dict_type(
        model, StateDictType.FULL_STATE_DICT, state_dict_config=save_policy
    ):
        state = model.state_dict()

        if rank == 0:
            torch.save(state, path)
