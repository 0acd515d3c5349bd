import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from checkpoint_handler import resume, save_sharded
from model import Block, Model, batch, loss_of


def build(seed):
    torch.manual_seed(seed)
    model = Model()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for module in reversed(list(model.modules())):  # children before parents
        if isinstance(module, Block):
            fully_shard(module, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


def train(model, optimizer, steps):
    losses = []
    for step in steps:
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main(out):
    model, optimizer = build(3)
    losses = train(model, optimizer, range(2))
    save_sharded(model, str(out / "both"), optimizer)
    resumed, optimizer = build(5)
    resume(resumed, optimizer, str(out / "both"))
    losses += train(resumed, optimizer, range(2, 4))
    return {"model": resumed, "losses": losses}
