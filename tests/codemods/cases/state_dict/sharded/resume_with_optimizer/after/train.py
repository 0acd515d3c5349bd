import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from model import Block, Model, batch, loss_of


def shard(model):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for module in reversed(list(model.modules())):  # children before parents
        if isinstance(module, Block):
            fully_shard(module, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def train(model, optimizer, steps):
    losses = []
    for step in steps:
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def save(model, optimizer, folder):
    state = {
        "model": get_model_state_dict(model),
        "optim": get_optimizer_state_dict(model, optimizer),
    }
    dcp.save(state, checkpoint_id=folder)


def load(model, optimizer, folder):
    state = {"model": get_model_state_dict(model)}
    dcp.load(state, checkpoint_id=folder)
    set_model_state_dict(model, state["model"])
    loaded = {"optim": get_optimizer_state_dict(model, optimizer)}
    dcp.load(loaded, storage_reader=FileSystemReader(folder))
    set_optimizer_state_dict(model, optimizer, loaded["optim"])


def main(out):
    model = shard(Model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = train(model, optimizer, range(2))
    save(model, optimizer, out / "checkpoint")
    again = shard(Model())
    optimizer = torch.optim.AdamW(again.parameters(), lr=0.01)
    load(again, optimizer, out / "checkpoint")
    losses += train(again, optimizer, range(2, 4))
    return {"model": again, "losses": losses}
