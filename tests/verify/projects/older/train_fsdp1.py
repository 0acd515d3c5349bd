"""The job under FSDP1; `record` holds what `verify --record` saw of it under torch 2.1.2."""

import contextlib

from job import Block, options, train
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


def shard(model):
    return FullyShardedDataParallel(model, auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)


def accumulating(model, is_last):
    return contextlib.nullcontext() if is_last else model.no_sync()


def clip(model, limit):
    model.clip_grad_norm_(limit)


train(shard, accumulating, clip, options())
