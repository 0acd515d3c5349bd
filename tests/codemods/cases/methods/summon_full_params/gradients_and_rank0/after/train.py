import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from fsdp2_sharding import summon_full_params
from model import Block, Model, batch, loss_of


def shard(model):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for module in reversed(list(model.modules())):  # children before parents
        if isinstance(module, Block):
            fully_shard(module, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def clean(name):
    return name.replace("_fsdp_wrapped_module.", "")


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
    with summon_full_params(model, with_grads=True):
        grads = {n: p.grad.clone() for n, p in model.named_parameters()}
        grads = {clean(name): grad for name, grad in grads.items()}
        model.head.bias.grad.zero_()
        model.embed.weight.data.add_(1.0)
    with summon_full_params(model, writeback=False, rank0_only=True):
        if dist.get_rank() == 0:
            torch.save(model.head.weight.clone(), out / "head.pt")
            model.head.weight.data.zero_()
    with summon_full_params(model, recurse=False):
        model.head.weight.data.mul_(2.0)
    optimizer.step()
    return {"model": model, "losses": losses, "grads": grads}
