import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from fsdp2_sharding import checkpoint_units_selectively, prefetch_units
from model import Block, Model, batch, loss_of


def sharded(model):
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
    for module in reversed(list(model.modules())):  # children before parents
        if isinstance(module, Block):
            fully_shard(module, mesh=mesh)
    fully_shard(model, mesh=mesh)
    checkpoint_units_selectively(model)
    prefetch_units(model, ahead=2)
    return model


def main(out):
    model = sharded(Model(depth=4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for step in range(3):
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"model": model, "losses": losses}
