import torch
from torch.distributed.fsdp import FSDPModule

from model import Model, batch, loss_of
from shard import STRATEGIES, full_weights, shard_model


class Trainer:
    def __init__(self, strategy):
        assert strategy in STRATEGIES
        self.strategy = strategy
        self.model = shard_model(Model(), strategy)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)

    @property
    def is_sharded(self):
        return self.strategy in ("fsdp", "fsdp2")

    def inner(self):
        return self.model

    def step(self, tokens):
        self.optimizer.zero_grad()
        loss = loss_of(self.model, tokens)
        loss.backward()
        self.optimizer.step()
        return loss.item()


def main(out, strategy):
    trainer = Trainer(strategy)
    losses = [trainer.step(batch(step)) for step in range(3)]
    weights = full_weights(trainer.model)
    if isinstance(trainer.model, FSDPModule):
        weights = dict(weights)
    return {
        "model": trainer.model,
        "losses": losses,
        "weights": {name: weights[name] for name in sorted(weights)},
        "sharded": trainer.is_sharded,
        "blocks": len(trainer.inner().blocks),
    }
