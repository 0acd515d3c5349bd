import functools

import torch

from fsdp2_sharding import shard_model, size_based_auto_wrap_policy
from model import Model, batch, loss_of


def shard(model):
    return shard_model(
        model,
        auto_wrap_policy=functools.partial(
            size_based_auto_wrap_policy, min_num_params=1000
        ),
        device_id=torch.device("cpu"),
    )


def main(out):
    model = shard(Model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for step in range(2):
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"model": model, "losses": losses}
