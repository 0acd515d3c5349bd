import torch
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
)

from fsdp2_sharding import load_full_optimizer


def save(model, optimizer, path, rank):
    state = get_optimizer_state_dict(
        model,
        optimizer,
        options=StateDictOptions(full_state_dict=True, cpu_offload=True),
    )
    if rank == 0:
        torch.save(state, path)


def load(model, optimizer, path, rank):
    full = torch.load(path) if rank == 0 else None
    load_full_optimizer(model, optimizer, full, broadcast=True)
