import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from model import Model, batch, loss_of


def other_libraries(model):
    """Names that look the same and are not FSDP1's."""
    from fairscale.nn import FullyShardedDataParallel as FSDP
    from torch_xla.distributed.fsdp import XlaFullyShardedDataParallel

    model = XlaFullyShardedDataParallel(FSDP(model))
    with model.no_sync():
        model.clip_grad_norm_(1.0)
    return isinstance(model, FSDP)


def main(out):
    model = Model()
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    loss = loss_of(model, batch(0))
    loss.backward()
    return {"model": model, "loss": loss.item(), "is": isinstance(model, FSDPModule)}
