import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from model import Block, Model, batch, loss_of


def shard(model):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for module in reversed(list(model.modules())):  # children before parents
        if isinstance(module, Block):
            fully_shard(module, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def save(model, folder):
    dcp.save({"model": get_model_state_dict(model)}, checkpoint_id=folder)


def main(out):
    model = shard(Model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for step in range(2):
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    save(model, out / "checkpoint")
    return {"model": model, "losses": losses}
