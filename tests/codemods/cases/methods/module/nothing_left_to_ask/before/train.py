import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.parallel import DistributedDataParallel as DDP

from model import Model, batch, loss_of

try:
    from torch.distributed.fsdp import CPUOffload
except ImportError:
    pass


def whole(model):
    return model.module if isinstance(model, FSDP) else model


def whole_of_either(model):
    return model.module if isinstance(model, (FSDP, DDP)) else model


def whole_in_steps(model):
    if isinstance(model, FSDP):
        model = model.module
    return model


def whole_unless_plain(model):
    return model if not isinstance(model, FSDP) else model.module


class Trainer:
    def __init__(self, model, fsdp):
        if fsdp:
            self.model = FSDP(model, device_id=torch.device("cpu"), use_orig_params=True)
        else:
            self.model = DDP(model)
        self.raw = self.model.module if isinstance(self.model, FSDP) else self.model  # no wrapper


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
