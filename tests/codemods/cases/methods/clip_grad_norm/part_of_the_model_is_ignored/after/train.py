import functools

import torch

from fsdp2_sharding import clip_grad_norm_, shard_model, transformer_auto_wrap_policy
from model import Block, Model, batch, loss_of


def shard(model):
    return shard_model(
        model,
        auto_wrap_policy=functools.partial(
            transformer_auto_wrap_policy, transformer_layer_cls={Block}
        ),
        ignored_modules=[model.embed],
        device_id=torch.device("cpu"),
    )


def main(out):
    model = Model()
    model.embed.requires_grad_(False)
    model = shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    losses, norms = [], []
    for step in range(3):
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        loss.backward()
        norms.append(clip_grad_norm_(model.parameters(), 0.5).item())
        optimizer.step()
        losses.append(loss.item())
    return {"model": model, "losses": losses, "norms": norms}
