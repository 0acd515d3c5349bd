import functools

import torch

from build import build
from fsdp2_sharding import shard_model, transformer_auto_wrap_policy
from model import Block, batch, loss_of


def main(out, meta):
    torch.manual_seed(7)
    with torch.device("meta" if meta else "cpu"):
        model = build(16)
    torch.manual_seed(8)
    model = shard_model(
        model,
        auto_wrap_policy=functools.partial(
            transformer_auto_wrap_policy, transformer_layer_cls={Block}
        ),
        device_id=torch.device("cpu"),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for step in range(2):
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"model": model, "losses": losses}
