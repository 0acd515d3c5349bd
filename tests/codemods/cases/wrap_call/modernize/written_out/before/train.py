import functools

import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import (
    _or_policy,
    lambda_auto_wrap_policy,
    transformer_auto_wrap_policy,
)

from model import Block, Model, batch, loss_of


def sharded(model):
    def is_trained_leaf(module):
        return not list(module.children()) and any(
            p.requires_grad for p in module.parameters()
        )

    leaves = functools.partial(lambda_auto_wrap_policy, lambda_fn=is_trained_leaf)
    blocks = functools.partial(
        transformer_auto_wrap_policy, transformer_layer_cls={Block}
    )
    policy = functools.partial(_or_policy, policies=[leaves, blocks])
    return FSDP(
        model,
        auto_wrap_policy=policy,
        device_id=torch.device("cpu"),
        use_orig_params=True,
    )


def main(out):
    model = sharded(Model(depth=4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for step in range(3):
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"model": model, "losses": losses}
