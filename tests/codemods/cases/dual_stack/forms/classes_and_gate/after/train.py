import torch
from torch.distributed.fsdp import fully_shard

from model import Model, batch, loss_of


class WholeModel:
    """Shared by both."""

    def __init__(self, lr):
        self.lr = lr

    def optimizer(self, model):
        return torch.optim.AdamW(model.parameters(), lr=self.lr)


class Fsdp2Strategy(WholeModel):
    def shard(self, model):
        fully_shard(model)
        return model


def strategy_of(lr):
    return Fsdp2Strategy(lr)


def main(out, use_fsdp2):
    strategy = strategy_of(0.01)
    model = strategy.shard(Model())
    optimizer = strategy.optimizer(model)
    losses = []
    for step in range(2):
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"model": model, "losses": losses}
