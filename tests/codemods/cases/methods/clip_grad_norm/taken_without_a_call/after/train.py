from functools import partial

import torch
from torch.distributed.fsdp import FSDPModule, fully_shard


def step(model, optimizer, accumulates):
    fully_shard(model)
    # TODO(fsdp-migrate FM531): call `torch.nn.utils.clip_grad_norm_(model.parameters(),
    #   c)` where it is used
    clip = model.clip_grad_norm_
    # TODO(fsdp-migrate FM531): call `model.set_requires_gradient_sync(is_last)` before
    #   each micro-batch instead
    context = partial(getattr(model, "no_sync"))
    clip(1.0)
    # TODO(fsdp-migrate FM531): call `torch.nn.utils.clip_grad_norm_(model.parameters(),
    #   c)` where it is used
    getattr(model, "clip_grad_norm_")(1.0, norm_type=2.0)
    # TODO(fsdp-migrate FM531): use `parameter.full_tensor()` for whole values
    read(model.summon_full_params, torch.float32)
    if isinstance(model, FSDPModule) and accumulates:
        with context():
            optimizer.step()


def read(enter, dtype):
    with enter() as values:
        return values.to(dtype)
