import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP

from model import Model, batch, loss_of


def whole(model):
    return model


def whole_of_either(model):
    return (
        getattr(model, "module", model)
        if isinstance(model, (FSDPModule, DDP))
        else model
    )


def whole_in_steps(model):
    return model


def whole_unless_plain(model):
    return model


class Trainer:
    def __init__(self, model, fsdp):
        if fsdp:
            self.model = fully_shard(
                model, mesh=init_device_mesh("cpu", (dist.get_world_size(),))
            )
        else:
            self.model = DDP(model)
        self.raw = self.model  # no wrapper


def main(out, fsdp):
    trainer = Trainer(Model(), fsdp)
    optimizer = torch.optim.AdamW(trainer.model.parameters(), lr=0.01)
    losses = []
    for step in range(2):
        optimizer.zero_grad()
        loss = loss_of(trainer.model, batch(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    functions = (whole, whole_of_either, whole_in_steps, whole_unless_plain)
    found = [type(f(trainer.model)).__name__.removeprefix("FSDP") for f in functions]
    return {"losses": losses, "found": found}
