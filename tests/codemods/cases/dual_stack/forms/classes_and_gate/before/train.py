import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

try:
    from torch.distributed.fsdp import fully_shard

    HAS_FSDP2 = True
except ImportError:
    HAS_FSDP2 = False

from model import Model, batch, loss_of


class WholeModel:
    """Shared by both."""

    def __init__(self, lr):
        self.lr = lr

    def optimizer(self, model):
        return torch.optim.AdamW(model.parameters(), lr=self.lr)


class Fsdp1Strategy(WholeModel):
    use_orig_params = True

    def shard(self, model):
        return FSDP(
            model,
            device_id=torch.device("cpu"),
            use_orig_params=self.use_orig_params,
        )


class Fsdp2Strategy(WholeModel):
    def shard(self, model):
        fully_shard(model)
        return model


def strategy_of(use_fsdp2, lr):
    if HAS_FSDP2 and use_fsdp2:
        return Fsdp2Strategy(lr)
    return Fsdp1Strategy(lr)


def main(out, use_fsdp2):
    strategy = strategy_of(use_fsdp2, 0.01)
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
