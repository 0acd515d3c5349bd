import torch
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
)

# create singleton saving policies to avoid making over and over
save_policy = StateDictOptions(full_state_dict=True, cpu_offload=True)


def save(model, path, rank):
    state = get_model_state_dict(model, options=save_policy)
    if rank == 0:
        torch.save(state, path)


def save_best(model, path, rank):
    state = get_model_state_dict(model, options=save_policy)

    if rank == 0:
        torch.save(state, path)
