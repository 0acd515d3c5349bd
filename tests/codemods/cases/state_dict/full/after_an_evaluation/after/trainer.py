import math

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
)
from torch.distributed.fsdp import FSDPModule

from fsdp2_sharding import load_full_optimizer
from model import batch, loss_of

FULL = StateDictOptions(full_state_dict=True)
FULL_OPTIM = StateDictOptions(full_state_dict=True)


class Trainer:
    """Keeps the best checkpoint and goes back to it at the end."""

    def __init__(self, model, optimizer, folder):
        self.model = model
        self.optimizer = optimizer
        self.folder = folder
        self.best = math.inf

    @torch.no_grad()
    def evaluate(self):
        total = loss_of(self.model, batch(50))
        dist.all_reduce(total)
        return total.item()

    def save_optimizer(self):
        # After a forward pass the root shows temporary parameters.
        for module in self.model.modules():
            if isinstance(module, FSDPModule):
                module.reshard()
        moments = get_optimizer_state_dict(
            self.model, self.optimizer, options=FULL_OPTIM
        )
        if dist.get_rank() == 0:
            torch.save(moments, self.folder / "optimizer.pt")

    def save_model(self):
        state = get_model_state_dict(
            self.model, options=StateDictOptions(full_state_dict=True)
        )
        if dist.get_rank() == 0:
            torch.save(state, self.folder / "model.pt")
        dist.barrier()

    def load_model(self):
        # After a forward pass the root shows temporary parameters.
        for module in self.model.modules():
            if isinstance(module, FSDPModule):
                module.reshard()
        set_model_state_dict(
            self.model,
            torch.load(self.folder / "model.pt"),
            options=StateDictOptions(full_state_dict=True),
        )

    def load_optimizer(self):
        saved = torch.load(self.folder / "optimizer.pt")
        # After a forward pass the root shows temporary parameters.
        for module in self.model.modules():
            if isinstance(module, FSDPModule):
                module.reshard()
        load_full_optimizer(self.model, self.optimizer, saved)

    def fit(self, epochs):
        losses = []
        for epoch in range(epochs):
            loss = loss_of(self.model, batch(epoch))
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            score = self.evaluate()
            if score < self.best:
                self.best = score
                self.save_optimizer()
                self.save_model()
            losses += [loss.item(), score]
        return losses


def resume(trainer, module):
    """The name that a loop over the modules would take is in use here."""
    # After a forward pass the root shows temporary parameters.
    for unit in module.modules():
        if isinstance(unit, FSDPModule):
            unit.reshard()
    set_model_state_dict(
        module,
        torch.load(trainer.folder / "model.pt"),
        options=StateDictOptions(full_state_dict=True),
    )
    return get_optimizer_state_dict(
        module, trainer.optimizer, options=StateDictOptions(full_state_dict=True)
    )
