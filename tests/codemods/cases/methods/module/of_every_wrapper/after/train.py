import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP

from model import Model, batch, loss_of


class Config:
    use_cache = False


class Named(Model):
    """A model with a configuration, and an attribute of that name of its own."""

    def __init__(self):
        super().__init__()
        self.config = Config()

    def save_pretrained(self, path, state_dict):
        torch.save({key: tuple(value.shape) for key, value in state_dict.items()}, path)


def wrap(model, kind):
    if kind == "fsdp":
        return fully_shard(
            model, mesh=init_device_mesh("cpu", (dist.get_world_size(),))
        )
    if kind == "ddp":
        return DDP(model)
    return model


def unwrap(model):
    return model.module if hasattr(model, "module") else model


def unwrap_all(model):
    while hasattr(model, "module"):
        model = model.module
    return model


def main(out, kind):
    torch.manual_seed(3)
    model = wrap(Named(), kind)
    inner = getattr(model, "module", model)
    found = [
        len(inner.blocks),
        len(unwrap(model).blocks),
        len(unwrap_all(model).blocks),
    ]
    if kind == "fsdp":
        sharded = Named()
        fully_shard(sharded, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
        found.append(len(list(sharded.children())))
        found.append(sorted(n for n, _ in sharded.named_children()))
        sharded.config.use_cache = True
        found.append(sharded.config.use_cache)
        sharded.save_pretrained(
            out / "shapes.pt",
            state_dict=get_model_state_dict(
                sharded, options=StateDictOptions(full_state_dict=True)
            ),
        )
    loss = loss_of(model, batch(0))
    loss.backward()
    return {"found": found, "loss": loss.item()}
