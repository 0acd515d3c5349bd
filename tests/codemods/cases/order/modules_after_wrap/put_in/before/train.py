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
