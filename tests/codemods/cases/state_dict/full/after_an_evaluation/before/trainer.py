import math

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullOptimStateDictConfig, FullStateDictConfig
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import StateDictType

from model import batch, loss_of

FULL = FullStateDictConfig(offload_to_cpu=False, rank0_only=False)
FULL_OPTIM = FullOptimStateDictConfig(offload_to_cpu=False, rank0_only=False)


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
        with FSDP.state_dict_type(
            self.model, StateDictType.FULL_STATE_DICT, FULL, FULL_OPTIM
        ):
            moments = FSDP.optim_state_dict(self.model, self.optimizer)
        if dist.get_rank() == 0:
            torch.save(moments, self.folder / "optimizer.pt")

    def save_model(self):
        state = self.model.state_dict()
        if dist.get_rank() == 0:
            torch.save(state, self.folder / "model.pt")
        dist.barrier()

    def load_model(self):
        self.model.load_state_dict(torch.load(self.folder / "model.pt"))

    def load_optimizer(self):
        saved = torch.load(self.folder / "optimizer.pt")
        state = FSDP.optim_state_dict_to_load(self.model, self.optimizer, saved)
        self.optimizer.load_state_dict(state)

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
    module.load_state_dict(torch.load(trainer.folder / "model.pt"))
    FSDP.set_state_dict_type(module, StateDictType.FULL_STATE_DICT, FULL, FULL_OPTIM)
    return FSDP.optim_state_dict(module, trainer.optimizer)
