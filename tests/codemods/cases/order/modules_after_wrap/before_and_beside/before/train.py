import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Linear(4, 4)
        self.lm_head = nn.Linear(4, 4)

    def forward(self, x):
        return self.lm_head(self.trunk(x))


def build():
    model = Net()
    model.lm_head = nn.Linear(4, 4)
    model = FSDP(model, use_orig_params=True)
    model.step = 3
    model.loss = nn.CrossEntropyLoss()
    return model


def build_parts():
    model = Net()
    model.trunk = FSDP(model.trunk, use_orig_params=True)
    model.lm_head = FSDP(nn.Linear(4, 4), use_orig_params=True)
    return model


class Trainer:
    def __init__(self):
        self.model = Net()
        self.model.lm_head = nn.Linear(4, 4)
        self.model = FSDP(self.model, use_orig_params=True)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
