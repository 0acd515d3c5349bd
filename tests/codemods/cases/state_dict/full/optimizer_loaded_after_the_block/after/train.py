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
    full_on_every_rank = StateDictOptions(full_state_dict=True)
    weights = get_model_state_dict(model, options=full_on_every_rank)
    moments = get_optimizer_state_dict(model, optimizer, options=full_on_every_rank)
    model = shard(Model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    set_model_state_dict(model, weights, options=StateDictOptions(full_state_dict=True))
    set_optimizer_state_dict(
        model, optimizer, moments, options=StateDictOptions(full_state_dict=True)
    )
    loss = loss_of(model, batch(2))
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    return {"model": model, "losses": losses}
