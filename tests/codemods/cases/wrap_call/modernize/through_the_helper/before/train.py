import functools

import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy

from model import Model, batch, loss_of


class Trainer:
    def __init__(self, model, smallest):
        policy = functools.partial(size_based_auto_wrap_policy, min_num_params=smallest)
        self.model = FSDP(
            model,
            auto_wrap_policy=policy,
            device_id=torch.device("cpu"),
            use_orig_params=True,
        )


def wrapped(model, smallest):
    policy = functools.partial(size_based_auto_wrap_policy, min_num_params=smallest)
    return [FSDP(model, auto_wrap_policy=policy)]


SHARED = Model(depth=1)


def shared(smallest):
    policy = functools.partial(size_based_auto_wrap_policy, min_num_params=smallest)
    return FSDP(SHARED, auto_wrap_policy=policy)


def whole(model):
    return FSDP(model)


def main(out, smallest=500):
    model = Trainer(Model(depth=4), smallest).model
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for step in range(3):
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"model": model, "losses": losses}
