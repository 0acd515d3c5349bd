"""The job under FSDP2."""

import contextlib

import torch
from job import options, train
from torch.distributed.fsdp import fully_shard


def shard(model):
    fully_shard(model.block)
    return fully_shard(model) or model


@contextlib.contextmanager
def accumulating(model, is_last):
    model.set_requires_gradient_sync(is_last)
    yield


def clip(model, limit):
    torch.nn.utils.clip_grad_norm_(model.parameters(), limit)


train(shard, accumulating, clip, options())
