import functools

import torch

from fsdp2_sharding import lambda_auto_wrap_policy, shard_model
from model import Block, Model, batch, loss_of


class OfClasses:
    """Asked as a function."""

    def __init__(self, classes):
        self.classes = classes

    def __call__(self, module):
        return isinstance(module, self.classes)


class Sizes:
    def __init__(self, least):
        self.least = least

    def is_large(self, module) -> bool:
        found = sum(p.numel() for p in module.parameters(recurse=False))
        return found >= self.least


def is_of(classes, module):
    if not classes:
        return False
    return isinstance(module, tuple(classes))


def wrap(model, policy):
    return shard_model(model, auto_wrap_policy=policy, device_id=torch.device("cpu"))


def main(out, form):
    if form == "object":
        model = wrap(
            Model(),
            functools.partial(lambda_auto_wrap_policy, lambda_fn=OfClasses((Block,))),
        )
    elif form == "method":
        model = wrap(
            Model(),
            functools.partial(lambda_auto_wrap_policy, lambda_fn=Sizes(512).is_large),
        )
    else:
        model = wrap(
            Model(),
            functools.partial(
                lambda_auto_wrap_policy, lambda_fn=functools.partial(is_of, [Block])
            ),
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
