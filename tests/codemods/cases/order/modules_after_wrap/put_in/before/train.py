import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


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
    model = FSDP(Net(), use_orig_params=True)
    model.lm_head = nn.Linear(4, 4)
    model.module.lm_head = Head()
    model.trunk[1] = nn.Linear(4, 4)
    model.trunk.add_module("last", nn.Linear(4, 4))
    setattr(model, "head", nn.Linear(4, 4))
    model.scale = nn.Parameter(torch.ones(4))
    return model


class Trainer:
    def __init__(self):
        self.model = FSDP(Net(), use_orig_params=True)

    def replace_head(self):
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
    model.left.parts = nn.ModuleList(FSDP(part, use_orig_params=True) for part in model.left.parts)
    model.left = FSDP(model.left, use_orig_params=True)
    return FSDP(model, use_orig_params=True)


def as_one(model: Towers):
    model.left = FSDP(model.left, use_orig_params=True)
    return FSDP(model, use_orig_params=True)
