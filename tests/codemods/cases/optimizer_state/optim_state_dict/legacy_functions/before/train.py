import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def save(model, optimizer, path, rank):
    state = FSDP.full_optim_state_dict(model, optimizer)
    if rank == 0:
        torch.save(state, path)


def load(model, optimizer, path, rank):
    full = torch.load(path) if rank == 0 else None
    sharded = FSDP.scatter_full_optim_state_dict(full, model, optim=optimizer)
    optimizer.load_state_dict(sharded)
