import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard

from model import Block, Model, batch, loss_of


def setup():
    if not dist.is_initialized():
        dist.init_process_group("cpu:gloo,cuda:nccl")


def main(out, steps):
    setup()
    torch.manual_seed(3)
    model = Model()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for module in reversed(list(model.modules())):  # children before parents
        if isinstance(module, Block):
            fully_shard(module, mesh=mesh, offload_policy=CPUOffloadPolicy())
    fully_shard(model, mesh=mesh, offload_policy=CPUOffloadPolicy())
    teacher = Model()
    fully_shard(teacher, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses, norms = [], []
    for step in range(steps):
        optimizer.zero_grad()
        tokens = batch(step)
        with torch.no_grad():
            soft = loss_of(teacher, tokens)
        loss = loss_of(model, tokens) + 0.1 * soft
        loss.backward()
        norms.append(
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1).full_tensor().item()
        )
        optimizer.step()
        losses.append(loss.item())
    return {"model": model, "losses": losses, "norms": norms}
