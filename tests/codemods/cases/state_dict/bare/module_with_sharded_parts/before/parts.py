import functools

import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import StateDictType
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

from model import Block, Model


def wrapper():
    shard = functools.partial(
        FSDP,
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        device_id=torch.device("cpu"),
        use_orig_params=True,
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
    with FSDP.state_dict_type(pair.students["one"], StateDictType.SHARDED_STATE_DICT):
        return pair.state_dict()
