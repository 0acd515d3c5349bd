from unittest import mock

import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import fully_shard

WAYS = {}


def way(name):
    def keep(function):
        WAYS[name] = function
        return function

    return keep


@way("fsdp")
def wrap(model):
    return FSDP(model)


@way("fsdp2")
def shard(model):
    return fully_shard(model)


@mock.patch("torch.distributed.get_world_size", return_value=2)
def wrapped_alone(model, world_size):
    return FSDP(model)


@mock.patch("torch.distributed.get_world_size", return_value=2)
def sharded_alone(model, world_size):
    return fully_shard(model)


def build(model, cfg):
    if cfg.new:
        fully_shard(model)
    else:
        if torch.distributed.get_world_size() > 1:
            model = FSDP(model)
    return model


def choose(model, cfg):
    if cfg.old:
        model = FSDP(model)
    elif cfg.single:
        model = model.cuda()
    elif cfg.new:
        fully_shard(model)
    return model


def by_name(model, cfg):
    if cfg.strategy == "fsdp":
        model = FSDP(model)
    elif cfg.strategy == "fsdp2":
        fully_shard(model)
    if cfg.strategy.endswith("2"):
        print("new")
    if cfg.strategy == "fsdp":
        print("sharded")
    return model
