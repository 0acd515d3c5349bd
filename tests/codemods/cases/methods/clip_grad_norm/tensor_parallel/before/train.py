import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


def build(model, mesh):
    for block in model.blocks:
        parallelize_module(block, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return FSDP(model, device_mesh=mesh["dp"], use_orig_params=True)


def step(model, mesh, optimizer, batch):
    model = build(model, mesh)
    model(batch).sum().backward()
    norm = model.clip_grad_norm_(1.0)
    optimizer.step()
    return norm


def by_torch(model, mesh, batch):
    model = build(model, mesh)
    model(batch).sum().backward()
    return torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
