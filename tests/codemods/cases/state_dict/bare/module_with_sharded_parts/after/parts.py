import functools

import torch
from torch import nn

from fsdp2_sharding import ModuleWrapPolicy, shard_model
from model import Block, Model


def wrapper():
    shard = functools.partial(
        shard_model,
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        device_id=torch.device("cpu"),
    )
    return shard


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))
        self.students = nn.ModuleDict({"one": Model(), "two": Model(depth=1)})

    def shard(self):
        for name in list(self.students):
            self.students[name] = wrapper()(self.students[name])

    def forward(self, tokens):
        return self.students["one"](tokens) + self.scale * self.students["two"](tokens)


def shards_of_part(pair):
    # TODO(fsdp-migrate FM402): use `get_model_state_dict(model,
    #   options=StateDictOptions(full_state_dict=True))` for whole tensors or
    #   `get_model_state_dict(model)` for shards, from
    #   `torch.distributed.checkpoint.state_dict`
    return pair.state_dict()
