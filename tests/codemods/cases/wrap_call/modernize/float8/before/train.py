import functools

import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy, size_based_auto_wrap_policy

from model import Block, Model


def visible(model, rank):
    model = FSDP(
        model,
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        device_id=rank,
        use_orig_params=True,
    )
    return model


def by_size(smallest):
    policy = functools.partial(size_based_auto_wrap_policy, min_num_params=smallest)
    model = FSDP(Model(), auto_wrap_policy=policy, use_orig_params=True)
    return model


def of_a_strategy(model, strategy):
    return {"model": FSDP(model, sharding_strategy=ShardingStrategy[strategy])}
