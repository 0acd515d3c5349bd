import torch
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
)


def save(model, path, rank):
    config = StateDictOptions(full_state_dict=True, cpu_offload=True)
    # whole tensors, on rank 0 only
    state = get_model_state_dict(model, options=config)
    if rank == 0:
        torch.save(state, path)
