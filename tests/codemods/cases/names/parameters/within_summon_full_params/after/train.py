import torch
from torch.distributed.fsdp import fully_shard

from fsdp2_sharding import summon_full_params


def shapes(model):
    fully_shard(model)
    with summon_full_params(model, writeback=False):
        whole = {name: tuple(p.shape) for name, p in model.named_parameters()}
        count = sum(p.numel() for p in model.parameters())
    # TODO(fsdp-migrate FM509): check which parameters this rule is meant to match: it
    #   matched by flattened shapes before
    parts = {name: tuple(p.shape) for name, p in model.named_parameters()}
    return whole, count, parts


def one(model):
    fully_shard(model)
    with torch.no_grad(), summon_full_params(model, writeback=False):
        whole = model.head.weight.norm()
    # TODO(fsdp-migrate FM523): use `full_tensor()` for whole values or `to_local()` for
    #   this rank's
    return whole, model.head.weight.norm()
