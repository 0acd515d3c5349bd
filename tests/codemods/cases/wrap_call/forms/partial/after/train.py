import functools

import torch

from fsdp2_sharding import ShardingStrategy, shard_model
from model import Model, batch, loss_of

shard = functools.partial(
    shard_model,
    sharding_strategy=ShardingStrategy.SHARD_GRAD_OP,
    device_id=torch.device("cpu"),
    # limit_all_gathers: FSDP1 only
)


def main(out):
    model = shard(Model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for step in range(3):
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"model": model, "losses": losses}
