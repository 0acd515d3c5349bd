import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
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


FULL = StateDictOptions(full_state_dict=True)
FULL_OPTIM = StateDictOptions(full_state_dict=True)


def save(model, optimizer, path):
    state = {
        "model": get_model_state_dict(model, options=FULL),
        "optim": get_optimizer_state_dict(model, optimizer, options=FULL_OPTIM),
    }
    if dist.get_rank() == 0:
        torch.save(state, path)


def load(model, optimizer, path):
    state = torch.load(path)
    set_model_state_dict(
        model, state["model"], options=StateDictOptions(full_state_dict=True)
    )
    set_optimizer_state_dict(
        model, optimizer, state["optim"], options=StateDictOptions(full_state_dict=True)
    )


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
    save(model, optimizer, out / "checkpoint.pt")
    dist.barrier()
    again = shard(Model())
    optimizer = torch.optim.AdamW(again.parameters(), lr=0.01)
    load(again, optimizer, out / "checkpoint.pt")
    for step in range(2, 4):
        optimizer.zero_grad()
        loss = loss_of(again, batch(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"model": again, "losses": losses}
