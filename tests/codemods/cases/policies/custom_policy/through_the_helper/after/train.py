from functools import partial

import torch

from fsdp2_sharding import ShardingStrategy, lambda_auto_wrap_policy, shard_model
from model import Block, Model, batch, loss_of


def main(out, strategy):
    policy = partial(
        lambda_auto_wrap_policy, lambda_fn=lambda module: isinstance(module, Block)
    )
    model = shard_model(
        Model(),
        auto_wrap_policy=policy,
        sharding_strategy=ShardingStrategy[strategy],
        device_id=torch.device("cpu"),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for step in range(3):
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"model": model, "losses": losses}
