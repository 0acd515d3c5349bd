import functools

import torch

from fsdp2_sharding import shard_model, transformer_auto_wrap_policy
from model import Block, Model, batch, loss_of


def main(out):
    model = Model()
    model.embed.requires_grad_(False)
    model = shard_model(
        model,
        auto_wrap_policy=functools.partial(
            transformer_auto_wrap_policy, transformer_layer_cls={Block}
        ),
        ignored_modules=[model.embed],
        device_id=torch.device("cpu"),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, foreach=False)
    losses = []
    for step in range(3):
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"model": model, "losses": losses}
