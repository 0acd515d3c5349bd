import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

from model import Model, batch, loss_of


def decayed_or_not(net):
    named = {n: p for n, p in dict(net.named_parameters()).items() if p.requires_grad}
    return [
        {"params": [p for p in named.values() if p.dim() > 1], "weight_decay": 0.5},
        {"params": [p for p in named.values() if p.dim() <= 1], "weight_decay": 0.0},
    ]


def biases_apart(net):
    named = dict(net.named_parameters())
    return [
        {"params": [named[n] for n in named if not n.endswith("bias")]},
        {"params": [named[n] for n in named if n.endswith("bias")], "lr": 0.05},
    ]


def main(out, by):
    model = Model()
    if by == "shape":
        optimizer = torch.optim.AdamW(decayed_or_not(model), lr=0.01)
        model = FSDP(model, device_id=torch.device("cpu"), use_orig_params=True)
    else:
        groups = biases_apart(model)
        optimizer = torch.optim.AdamW(params=groups, lr=0.01)
        model = FSDP(model, device_id=torch.device("cpu"), use_orig_params=True)
    losses = []
    for step in range(3):
        loss = loss_of(model, batch(step))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return {"model": model, "losses": losses}
