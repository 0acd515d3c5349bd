import contextlib

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from fsdp2_sharding import summon_full_params
from model import Block, Model, batch, loss_of


def shard(model):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for module in reversed(list(model.modules())):  # children before parents
        if isinstance(module, Block):
            fully_shard(module, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def sample(model, tokens, sharded):
    context = lambda: (  # noqa: E731
        contextlib.nullcontext()
    )
    with context():
        return model.generate(tokens, steps=4)


def looked_at(model, tokens):
    with torch.no_grad(), summon_full_params(model, writeback=False):
        sampled = model.generate(tokens, steps=2)
        return sampled, model.head.weight.abs().sum()


def main(out):
    model = shard(Model())
    before = sample(model, batch(0), True)
    # After a forward pass the root shows temporary parameters.
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    losses = []
    for step in range(2):
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        looks = looked_at(model, batch(step))
    after = sample(model, batch(1), True)
    return {"model": model, "losses": losses, "before": before, "after": after, "looks": looks}
