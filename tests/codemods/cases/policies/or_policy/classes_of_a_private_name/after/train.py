import functools

import torch
from torch import nn

from fsdp2_sharding import module_wrap_policy, or_policy, shard_model
from model import Block, Model, batch, loss_of
from policies import of_embeddings


def main(out, by_part):
    blocks = functools.partial(module_wrap_policy, module_classes={Block})
    if by_part:
        policy = functools.partial(
            or_policy, policies=[blocks, of_embeddings(nn.Embedding)]
        )
    else:
        policy = blocks
    model = shard_model(
        Model(),
        auto_wrap_policy=policy,
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
