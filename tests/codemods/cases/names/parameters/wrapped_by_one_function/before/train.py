import copy

import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def sharded(net, device=None):
    if device is not None:
        net = net.to(device)
    net = FSDP(net, use_orig_params=True)
    return net


@torch.no_grad()
def update(average, model, decay=0.9):
    for a, p in zip(average.parameters(), model.parameters()):
        a.mul_(decay).add_(p, alpha=1 - decay)


@torch.no_grad()
def perturb(model):
    for p in model.parameters():
        p.add_(torch.randn_like(p))


def evaluate(model, batches):
    model.eval()
    with torch.no_grad():
        return sum(model(x).sum() for x in batches)


def main(net, batches):
    model, average = sharded(net), sharded(copy.deepcopy(net), "cpu")
    for _ in range(3):
        for x in batches:
            model(x).sum().backward()
            perturb(model)
            update(average, model)
        print(evaluate(average, batches), evaluate(model, batches))
