import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from model import Model, batch, loss_of


def shard(model, version):
    if version in (1, 2):
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
    else:
        raise ValueError(version)
    return model


def clip(model, norm):
    if isinstance(model, FSDPModule):
        return torch.nn.utils.clip_grad_norm_(model.parameters(), norm).full_tensor()
    return torch.nn.utils.clip_grad_norm_(model.parameters(), norm)


def main(out, version):
    model = shard(Model(), version)
    loss = loss_of(model, batch(0))
    loss.backward()
    norm = clip(model, 1.0)
    return {"model": model, "norm": norm, "sharded": isinstance(model, FSDPModule)}
