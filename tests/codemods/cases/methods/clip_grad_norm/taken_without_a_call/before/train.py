from functools import partial

import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def step(model, optimizer, accumulates):
    model = FSDP(model)
    clip = model.clip_grad_norm_
    context = partial(getattr(model, "no_sync"))
    clip(1.0)
    getattr(model, "clip_grad_norm_")(1.0, norm_type=2.0)
    read(model.summon_full_params, torch.float32)
    if hasattr(model, "no_sync") and accumulates:
        with context():
            optimizer.step()


def read(enter, dtype):
    with enter() as values:
        return values.to(dtype)
