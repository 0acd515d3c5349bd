import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
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
        return FSDP(model, device_id=torch.device("cpu"), use_orig_params=True)
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
        sharded = FSDP(Named(), device_id=torch.device("cpu"), use_orig_params=True)
        found.append(len(list(sharded.module.children())))
        found.append(sorted(n for n, _ in sharded.module.named_children()))
        sharded.module.config.use_cache = True
        found.append(sharded.module.config.use_cache)
        sharded.module.save_pretrained(
            out / "shapes.pt", state_dict=sharded.state_dict()
        )
    loss = loss_of(model, batch(0))
    loss.backward()
    return {"found": found, "loss": loss.item()}
