import torch
import torch.distributed as dist

from model import Net
from torch.distributed.fsdp import fully_shard


class Watcher:
    def __init__(self, model):
        self.table = dict(model.named_parameters())

    def matrices(self):
        # TODO(fsdp-migrate FM509): check which parameters this rule is meant to match:
        #   it matched by flattened shapes before
        return [name for name, p in self.table.items() if p.ndim == 2]


def momentum(optimizer, model):
    total = 0.0
    for p in model.parameters():
        # TODO(fsdp-migrate FM514): use `full_tensor()` for whole values or `to_local()`
        #   for this rank's, and drop reductions of your own
        total += optimizer.state[p]["exp_avg"].norm().item()
    return total


def largest(optimizer):
    # TODO(fsdp-migrate FM514): use `full_tensor()` for whole values or `to_local()` for
    #   this rank's, and drop reductions of your own
    return max(
        torch.linalg.vector_norm(state["exp_avg_sq"])
        for state in optimizer.state.values()
    )


def steps(optimizer):
    return [state["step"].item() for state in optimizer.state.values()]


def count_matrices(model):
    names, parameters = zip(*model.named_parameters())
    # TODO(fsdp-migrate FM509): check which parameters this rule is meant to match: it
    #   matched by flattened shapes before
    return sum(p.ndim == 2 for p in parameters), names


def main():
    model = Net()
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters())
    watcher = Watcher(model)
    print(watcher.matrices(), count_matrices(model), steps(optimizer))
    print(momentum(optimizer, model), largest(optimizer))
    dist.barrier(group=dist.group.WORLD)
