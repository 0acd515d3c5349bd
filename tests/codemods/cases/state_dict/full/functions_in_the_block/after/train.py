import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
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


def save(model, optimizer, path):
    def save_model():
        state = {
            name: value.half()
            for name, value in get_model_state_dict(
                model, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
            ).items()
        }
        if dist.get_rank() == 0:
            torch.save(state, path / "model.pt")

    save_model()

    def save_optimizer():
        state = get_optimizer_state_dict(
            model, optimizer, options=StateDictOptions(full_state_dict=True)
        )
        if dist.get_rank() == 0:
            torch.save(state, path / "optimizer.pt")

    save_optimizer()


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
    save(model, optimizer, out)
    return {"losses": losses}
