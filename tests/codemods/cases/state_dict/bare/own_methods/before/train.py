import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Adapted(nn.Module):
    def __init__(self, path=None):
        super().__init__()
        self.body = nn.Linear(4, 4)
        self.adapter = nn.Linear(4, 4)
        if path is not None:
            self.load_state_dict(torch.load(path))

    def load_state_dict(self, state):
        own = {name: value for name, value in state.items() if "adapter" in name}
        super().load_state_dict({**self.state_dict(), **own})


class Pair(nn.Module):
    def __init__(self, path):
        super().__init__()
        self.student = nn.Linear(4, 4)
        self.teacher = nn.Linear(4, 4)
        if path is not None:
            self.load_state_dict(torch.load(path))
        self.student = FSDP(self.student)
        self.teacher = FSDP(self.teacher)


def adapted(path):
    model = FSDP(Adapted(path))
    model.load_state_dict(torch.load(path))
    return model


def pair(path):
    model = Pair(path)
    model.load_state_dict(torch.load(path))
    return model
