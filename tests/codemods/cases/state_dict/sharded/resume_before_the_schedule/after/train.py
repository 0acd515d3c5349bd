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

from fsdp2_sharding import read_sharded_optimizer
from model import Block, Model, batch, loss_of


def shard(model):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for module in reversed(list(model.modules())):  # children before parents
        if isinstance(module, Block):
            fully_shard(module, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def schedule(optimizer, done=0):
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 1 / (1 + n + done))


def train(model, optimizer, scheduler, steps):
    losses = []
    for step in steps:
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        loss.backward()
        optimizer.step()
        scheduler.step()
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
    loaded = read_sharded_optimizer(model, optimizer, "optim", FileSystemReader(folder))
    set_optimizer_state_dict(model, optimizer, loaded["optim"])


def main(out):
    model = shard(Model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = train(model, optimizer, schedule(optimizer), range(2))
    save(model, optimizer, out / "checkpoint")
    again = shard(Model())
    optimizer = torch.optim.AdamW(again.parameters(), lr=0.01)
    load(again, optimizer, out / "checkpoint")
    losses += train(again, optimizer, schedule(optimizer, done=2), range(2, 5))
    rates = [group["initial_lr"] for group in optimizer.param_groups]
    return {"model": again, "losses": losses + rates}
