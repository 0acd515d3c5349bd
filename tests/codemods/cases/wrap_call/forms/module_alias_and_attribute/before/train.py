import torch
import torch.distributed.fsdp as fsdp

from model import Model, batch, loss_of


class Trainer:
    def __init__(self):
        self.model = Model()

    def shard(self):
        self.model = fsdp.FullyShardedDataParallel(
            self.model,
            sharding_strategy=fsdp.ShardingStrategy.SHARD_GRAD_OP,
            device_id=torch.device("cpu"),
            use_orig_params=True,
        )
        return self.model


def main(out):
    model = Trainer().shard()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for step in range(3):
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"model": model, "losses": losses}
