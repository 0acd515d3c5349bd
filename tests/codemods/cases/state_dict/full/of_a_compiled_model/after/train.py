import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
)
from torch.distributed.fsdp import fully_shard


def save(model, path):
    full = StateDictOptions(full_state_dict=True, cpu_offload=True)
    state = get_model_state_dict(model, options=full)
    if dist.get_rank() == 0:
        torch.save(state, path)


def compiled_after(path):
    model = nn.Linear(4, 4)
    fully_shard(model)
    model = torch.compile(model)
    save(model, path)


def compiled_before(path):
    net = nn.Linear(4, 4)
    net = torch.compile(net)
    sharded = fully_shard(net)
    save(sharded, path)


def compiled_for_running(batch, path):
    plain = nn.Linear(4, 4)
    fully_shard(plain)
    quick = torch.compile(plain)
    quick(batch)
    state = get_model_state_dict(plain, options=StateDictOptions(full_state_dict=True))
    torch.save(state, path)


def in_place(path):
    other = nn.Linear(4, 4)
    fully_shard(other)
    other.compile()
    torch.save(
        get_model_state_dict(other, options=StateDictOptions(full_state_dict=True)),
        path,
    )
