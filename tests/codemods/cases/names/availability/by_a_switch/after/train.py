import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from model import Model, batch, loss_of
from switch import Switch

SHARD = Switch.is_on

if not Switch.is_on:
    FullyShardedDataParallel = None
else:
    from torch.distributed.fsdp import FullyShardedDataParallel


def wrap(model):
    if not SHARD:
        return model
    return fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))


def name(model):
    # TODO(fsdp-migrate FM530): ask that condition itself: with FSDP2 there is always
    #   something to import
    if FullyShardedDataParallel is None:
        return "plain"
    return "sharded"


def main(out):
    model = wrap(Model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step in range(2):
        loss = loss_of(model, batch(step))
        loss.backward()
        if SHARD and isinstance(model, FSDPModule):
            torch.nn.utils.clip_grad_norm_(model.parameters(), 100.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return {"losses": losses, "model": model}
