import torch
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    set_optimizer_state_dict,
)
from torch.distributed.fsdp import fully_shard

from fsdp2_sharding import load_full_optimizer


def build(module):
    model = fully_shard(module)
    return model, torch.optim.Adam(model.parameters(), lr=1e-3)


def resume(module, path):
    model, optimizer = build(module)
    state = torch.load(path)
    load_full_optimizer(model, optimizer, state)
    return torch.optim.lr_scheduler.ConstantLR(optimizer, last_epoch=3)


def resume_with_the_schedule(module, path):
    model, optimizer = build(module)
    schedule = torch.optim.lr_scheduler.ConstantLR(optimizer)
    state = torch.load(path)
    set_optimizer_state_dict(
        model, optimizer, state, options=StateDictOptions(full_state_dict=True)
    )
    return schedule
