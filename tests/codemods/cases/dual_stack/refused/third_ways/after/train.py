from unittest import mock

import torch
from torch.distributed.fsdp import fully_shard

WAYS = {}


def way(name):
    def keep(function):
        WAYS[name] = function
        return function

    return keep


# TODO(fsdp-migrate FM121): remove what is FSDP1's by hand, so that whoever chose it
#   gets FSDP2 or is told: a registry may be asked for it by its name
@way("fsdp")
def wrap(model):
    return fully_shard(model)


@way("fsdp2")
def shard(model):
    return fully_shard(model)


@mock.patch("torch.distributed.get_world_size", return_value=2)
def wrapped_alone(model, world_size):
    return fully_shard(model)


@mock.patch("torch.distributed.get_world_size", return_value=2)
def sharded_alone(model, world_size):
    return fully_shard(model)


def build(model, cfg):
    # TODO(fsdp-migrate FM121): remove what is FSDP1's by hand, so that whoever chose it
    #   gets FSDP2 or is told: FSDP1 is one of several ways within its branch
    if cfg.new:
        fully_shard(model)
    else:
        if torch.distributed.get_world_size() > 1:
            fully_shard(model)
    return model


def choose(model, cfg):
    # TODO(fsdp-migrate FM121): remove what is FSDP1's by hand, so that whoever chose it
    #   gets FSDP2 or is told: what comes between the FSDP1 and the FSDP2 branch could
    #   get FSDP1's users
    if cfg.old:
        fully_shard(model)
    elif cfg.single:
        model = model.cuda()
    elif cfg.new:
        fully_shard(model)
    return model


def by_name(model, cfg):
    if cfg.strategy in ("fsdp", "fsdp2"):
        fully_shard(model)
    # TODO(fsdp-migrate FM121): remove what is FSDP1's by hand, so that whoever chose it
    #   gets FSDP2 or is told: it asks for a part of the setting's text, which FSDP1's
    #   value does not have
    if cfg.strategy.endswith("2"):
        print("new")
    # TODO(fsdp-migrate FM121): remove what is FSDP1's by hand, so that whoever chose it
    #   gets FSDP2 or is told: it is for FSDP1's value of the setting alone, but nothing
    #   in it is FSDP1's
    if cfg.strategy == "fsdp":
        print("sharded")
    return model
