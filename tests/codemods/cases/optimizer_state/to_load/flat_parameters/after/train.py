import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from fsdp2_sharding import load_full_optimizer
from model import Block, Model, batch, loss_of


def shard(model):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for module in reversed(list(model.modules())):  # children before parents
        if isinstance(module, Block):
            fully_shard(module, mesh=mesh)
    return fully_shard(model, mesh=mesh)


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
    full = StateDictOptions(full_state_dict=True)
    state = {
        "model": get_model_state_dict(
            model, options=StateDictOptions(full_state_dict=True)
        ),
        "optim": get_optimizer_state_dict(model, optimizer, options=full),
    }
    if dist.get_rank() == 0:
        torch.save(state, out / "checkpoint.pt")
    dist.barrier()
    again = shard(Model())
    # The settings come with the state.
    optimizer = torch.optim.AdamW(again.parameters(), lr=0.1, eps=0)
    saved = torch.load(out / "checkpoint.pt")
    set_model_state_dict(
        again, saved["model"], options=StateDictOptions(full_state_dict=True)
    )
    load_full_optimizer(again, optimizer, saved["optim"])
    for step in range(2, 5):
        optimizer.zero_grad()
        loss = loss_of(again, batch(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"model": again, "losses": losses}
