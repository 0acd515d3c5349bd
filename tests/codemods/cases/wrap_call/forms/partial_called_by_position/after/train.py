import functools

import torch

from fsdp2_sharding import (
    MixedPrecision,
    ModuleWrapPolicy,
    ShardingStrategy,
    shard_model,
)
from model import Block, Model, batch, loss_of

wrap = functools.partial(shard_model, device_id=torch.device("cpu"))


def by_position(model, strategy, precision):
    return wrap(
        model,
        sharding_strategy=ShardingStrategy[strategy],
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        mixed_precision=precision,
    )


def by_name(model, strategy, precision):
    return wrap(
        model=model,
        sharding_strategy=ShardingStrategy[strategy],
        mixed_precision=precision,
    )


def module_first(model, strategy, precision):
    make = functools.partial(
        shard_model,
        model,
        sharding_strategy=ShardingStrategy[strategy],
        mixed_precision=precision,
    )
    return make(device_id=torch.device("cpu"))


def partial_of_partial(model, strategy, precision):
    make = functools.partial(
        shard_model, device_id=torch.device("cpu"), mixed_precision=precision
    )
    inner = functools.partial(make, model)
    return inner(sharding_strategy=ShardingStrategy[strategy])


def main(out, form, strategy):
    precision = MixedPrecision(param_dtype=torch.bfloat16)
    model = globals()[form](Model(), strategy, precision)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for step in range(2):
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"losses": losses}
