import torch
from torch.distributed.checkpoint.state_dict import get_model_state_dict

from settings import full_on_cpu


def save(model, path, rank):
    state = get_model_state_dict(model, options=full_on_cpu)
    if rank == 0:
        torch.save(state, path)
