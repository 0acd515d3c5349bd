import functools

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

from model import Model, batch, loss_of

wrap = functools.partial(FSDP, device_id=torch.device("cpu"), use_orig_params=True)


def shard(model):
    return wrap(model, ignored_modules=[model.embed])


def norm_of(model):
    total = torch.zeros(())
    for p in model.parameters():
        if p.grad is not None:
            total += p.grad.norm(2) ** 2
    dist.all_reduce(total)
    return total.sqrt().item()


def first_norm():
    model = shard(Model())
    loss_of(model, batch(0)).backward()
    return norm_of(model)


def main(out):
    model = Model()
    model.embed.requires_grad_(False)
    model = shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses, norms = [], []
    for step in range(3):
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        loss.backward()
        norms.append(model.clip_grad_norm_(0.5).item())
        optimizer.step()
        losses.append(loss.item())
    return {"model": model, "losses": losses, "norms": norms}
