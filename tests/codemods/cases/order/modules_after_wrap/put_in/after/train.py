import torch
from torch import nn
from torch.distributed.fsdp import fully_shard

from fsdp2_sharding import shard_model


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(4, 4)

    def forward(self, x):
        return self.out(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        self.lm_head = Head()

    def forward(self, x):
        return self.lm_head(self.trunk(x))


def build():
    model = Net()
    fully_shard(model)
    # TODO(fsdp-migrate FM538): put it into the model before the model is sharded
    model.lm_head = nn.Linear(4, 4)
    # TODO(fsdp-migrate FM538): put it into the model before the model is sharded
    model.lm_head = Head()
    # TODO(fsdp-migrate FM538): put it into the model before the model is sharded
    model.trunk[1] = nn.Linear(4, 4)
    # TODO(fsdp-migrate FM538): put it into the model before the model is sharded
    model.trunk.add_module("last", nn.Linear(4, 4))
    # TODO(fsdp-migrate FM538): put it into the model before the model is sharded
    setattr(model, "head", nn.Linear(4, 4))
    # TODO(fsdp-migrate FM538): put it into the model before the model is sharded
    model.scale = nn.Parameter(torch.ones(4))
    return model


class Trainer:
    def __init__(self):
        self.model = Net()
        fully_shard(self.model)

    def replace_head(self):
        # TODO(fsdp-migrate FM538): put it into the model before the model is sharded
        self.model.lm_head = Head()


class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))


class Towers(nn.Module):
    def __init__(self):
        super().__init__()
        self.left = Tower()


def by_towers(model: Towers):
    model.left.parts = nn.ModuleList(shard_model(part) for part in model.left.parts)
    fully_shard(model.left)
    return fully_shard(model)


def as_one(model: Towers):
    fully_shard(model.left)
    return fully_shard(model)
