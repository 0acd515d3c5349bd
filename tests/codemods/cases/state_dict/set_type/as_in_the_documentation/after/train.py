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

from fsdp2_sharding import full_tensors
from model import Model, batch, loss_of


def build():
    model = Model()
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


def train(model, optimizer, first):
    losses = []
    for step in range(first, first + 2):
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def save(model, optim, path):
    state_dict = full_tensors(get_model_state_dict(model), rank0_only=True)
    optim_state_dict = full_tensors(
        get_optimizer_state_dict(model, optim), rank0_only=True
    )
    if dist.get_rank() == 0:
        torch.save({"model": state_dict, "optim": optim_state_dict}, path)
    dist.barrier()


def load(model, optim, path):
    saved = torch.load(path, weights_only=False)
    set_model_state_dict(
        model, saved["model"], options=StateDictOptions(full_state_dict=True)
    )
    set_optimizer_state_dict(
        model, optim, saved["optim"], options=StateDictOptions(full_state_dict=True)
    )


def main(out):
    model, optimizer = build()
    losses = train(model, optimizer, 0)
    save(model, optimizer, out / "checkpoint.pt")
    model, optimizer = build()
    load(model, optimizer, out / "checkpoint.pt")
    return {"model": model, "losses": losses + train(model, optimizer, 2)}
