import torch
from torch import nn
from torch.distributed.fsdp import fully_shard


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
    fully_shard(model)
    model.step = 3
    model.loss = nn.CrossEntropyLoss()
    return model


def build_parts():
    model = Net()
    fully_shard(model.trunk)
    model.lm_head = nn.Linear(4, 4)
    fully_shard(model.lm_head)
    return model


class Trainer:
    def __init__(self):
        self.model = Net()
        self.model.lm_head = nn.Linear(4, 4)
        fully_shard(self.model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
