import functools

import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import (
    _or_policy,
    lambda_auto_wrap_policy,
    transformer_auto_wrap_policy,
)

from model import Block, Model, batch, loss_of


def is_trainable_leaf(module):
    return not list(module.named_children()) and any(
        p.requires_grad for p in module.parameters()
    )


def main(out):
    lambda_policy = functools.partial(
        lambda_auto_wrap_policy, lambda_fn=is_trainable_leaf
    )
    transformer_policy = functools.partial(
        transformer_auto_wrap_policy, transformer_layer_cls=(Block,)
    )
    auto_wrap_policy = functools.partial(
        _or_policy, policies=[lambda_policy, transformer_policy]
    )
    model = FSDP(
        Model(),
        auto_wrap_policy=auto_wrap_policy,
        device_id=torch.device("cpu"),
        use_orig_params=True,
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
