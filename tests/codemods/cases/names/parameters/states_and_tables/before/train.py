import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

from model import Net


class Watcher:
    def __init__(self, model):
        self.table = dict(model.named_parameters())

    def matrices(self):
        return [name for name, p in self.table.items() if p.ndim == 2]


def momentum(optimizer, model):
    total = 0.0
    for p in model.parameters():
        total += optimizer.state[p]["exp_avg"].norm().item()
    return total


def largest(optimizer):
    return max(
        torch.linalg.vector_norm(state["exp_avg_sq"])
        for state in optimizer.state.values()
    )


def steps(optimizer):
    return [state["step"].item() for state in optimizer.state.values()]


def count_matrices(model):
    names, parameters = zip(*model.named_parameters())
    return sum(p.ndim == 2 for p in parameters), names


def main():
    model = FSDP(Net(), use_orig_params=True)
    optimizer = torch.optim.AdamW(model.parameters())
    watcher = Watcher(model)
    print(watcher.matrices(), count_matrices(model), steps(optimizer))
    print(momentum(optimizer, model), largest(optimizer))
    dist.barrier(group=model.process_group)
