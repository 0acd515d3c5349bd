import functools

import torch

from fsdp2_sharding import (
    shard_model,
    size_based_auto_wrap_policy,
    transformer_auto_wrap_policy,
)
from model import Block, Model, batch, loss_of


def shard(model, unit_size):
    if unit_size:
        policy = functools.partial(
            size_based_auto_wrap_policy, min_num_params=unit_size
        )
    else:
        policy = functools.partial(
            transformer_auto_wrap_policy, transformer_layer_cls={Block}
        )
    return shard_model(
        model,
        auto_wrap_policy=policy,
        device_id=torch.device("cpu"),
    )


def main(out, size):
    model = shard(Model(), size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for step in range(2):
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"model": model, "losses": losses}
