import functools

import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

from model import Block, Model, batch, loss_of

wrap = functools.partial(FSDP, device_id=torch.device("cpu"), use_orig_params=True)


def by_position(model, strategy, precision):
    return wrap(model, None, ShardingStrategy[strategy], None, ModuleWrapPolicy({Block}), None, precision)


def by_name(model, strategy, precision):
    return wrap(module=model, sharding_strategy=ShardingStrategy[strategy], mixed_precision=precision)


def module_first(model, strategy, precision):
    make = functools.partial(FSDP, model, None, ShardingStrategy[strategy], mixed_precision=precision)
    return make(device_id=torch.device("cpu"))


def partial_of_partial(model, strategy, precision):
    make = functools.partial(FSDP, device_id=torch.device("cpu"), mixed_precision=precision)
    inner = functools.partial(make, model, None)
    return inner(ShardingStrategy[strategy])


def main(out, form, strategy):
    precision = MixedPrecision(param_dtype=torch.bfloat16)
    model = globals()[form](Model(), strategy, precision)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for step in range(2):
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"losses": losses}
