from dataclasses import dataclass

import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


@torch.no_grad()
def average(target, source, beta=0.999):
    for own, other in zip(target.parameters(), source.parameters(), strict=True):
        own.data = own.data * beta + other.data * (1 - beta)


@torch.no_grad()
def average_in_place(target, source, beta=0.999):
    for own, other in zip(target.parameters(), source.parameters(), strict=True):
        own.data.mul_(beta).add_(other.data, alpha=1 - beta)


class Core:
    @dataclass
    class Models:
        model: torch.nn.Module
        average: torch.nn.Module = None

    def run(self, batches):
        models = self.build()
        self.train(models, batches)

    def train(self, models: Models, batches):
        optimizer = torch.optim.AdamW(models.model.parameters())
        for batch in batches:
            models.model(batch).sum().backward()
            optimizer.step()
            average(models.average, models.model)
            average_in_place(models.average, models.model)


class Trainer(Core):
    def build(self):
        model, averaged = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
        return self.Models(model=FSDP(model), average=FSDP(averaged))
