import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Heads(nn.Module):
    def __init__(self, base, count):
        super().__init__()
        self.base = base
        self.heads = nn.ModuleList([nn.Linear(8, 8) for _ in range(count)])
        weight = base.weight.detach().clone()
        for head in self.heads:
            with torch.no_grad():
                head.weight.copy_(weight)
        self.heads[0] = nn.Linear(8, 8)
        with torch.no_grad():
            self.heads[0].weight.copy_(weight)

    def reset(self, weight):
        for head in self.heads:
            with torch.no_grad():
                head.weight.copy_(weight)


class WrappedAtOnce(nn.Module):
    def __init__(self, count):
        super().__init__()
        self.heads = nn.ModuleList([nn.Linear(8, 8) for _ in range(count)])
        self.wrap_heads()
        for head in self.heads:
            head.weight.copy_(torch.ones(8, 8))

    def wrap_heads(self):
        for number in range(len(self.heads)):
            self.heads[number] = FSDP(self.heads[number])


def main(weight):
    model = Heads(nn.Linear(8, 8), 2)
    for number in range(2):
        model.heads[number] = FSDP(model.heads[number])
    model = FSDP(model)
    model.reset(weight)
    return model, WrappedAtOnce(2)
