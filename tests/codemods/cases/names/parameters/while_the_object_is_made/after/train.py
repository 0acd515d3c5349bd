import torch
from torch import nn
from torch.distributed.fsdp import fully_shard


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
                # TODO(fsdp-migrate FM523): use `full_tensor()` for whole values or
                #   `to_local()` for this rank's
                head.weight.copy_(weight)


class WrappedAtOnce(nn.Module):
    def __init__(self, count):
        super().__init__()
        self.heads = nn.ModuleList([nn.Linear(8, 8) for _ in range(count)])
        self.wrap_heads()
        for head in self.heads:
            # TODO(fsdp-migrate FM523): use `full_tensor()` for whole values or
            #   `to_local()` for this rank's
            head.weight.copy_(torch.ones(8, 8))

    def wrap_heads(self):
        for number in range(len(self.heads)):
            fully_shard(self.heads[number])


def main(weight):
    model = Heads(nn.Linear(8, 8), 2)
    for number in range(2):
        fully_shard(model.heads[number])
    fully_shard(model)
    model.reset(weight)
    return model, WrappedAtOnce(2)
