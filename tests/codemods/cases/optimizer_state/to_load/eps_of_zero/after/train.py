import torch
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    set_optimizer_state_dict,
)
from torch.distributed.fsdp import fully_shard

from fsdp2_sharding import load_full_optimizer

EPS = 0.0


def build(module):
    model = fully_shard(module)
    return model, torch.optim.Adam(model.parameters(), lr=1e-3, eps=EPS)


def resume(module, path):
    model, optimizer = build(module)
    state = torch.load(path)
    load_full_optimizer(model, optimizer, state)
    return model, optimizer


def resume_with_eps(module, path):
    model = fully_shard(module)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, eps=1e-8)
    state = torch.load(path)
    set_optimizer_state_dict(
        model, optimizer, state, options=StateDictOptions(full_state_dict=True)
    )
    return model, optimizer
