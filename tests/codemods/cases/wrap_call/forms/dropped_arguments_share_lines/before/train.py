import functools

import torch
from torch.distributed.fsdp import BackwardPrefetch, ShardingStrategy, FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy, enable_wrap, wrap


def at_the_end(model, size, name):
    policy = functools.partial(size_based_auto_wrap_policy, min_num_params=size)
    model = FSDP(model, auto_wrap_policy=policy, sharding_strategy=ShardingStrategy[name],
                 limit_all_gathers=True, use_orig_params=True)
    return model


def with_a_last_comma(model, name):
    return FSDP(
        model,
        sharding_strategy=ShardingStrategy[name],
        backward_prefetch=BackwardPrefetch.BACKWARD_PRE, limit_all_gathers=True,
        use_orig_params=True,
    )


def in_the_middle(model, name):
    return FSDP(
        model, use_orig_params=True, limit_all_gathers=True, sharding_strategy=ShardingStrategy[name],
    )


def with_a_comment(model, name):
    return FSDP(
        model,
        sharding_strategy=ShardingStrategy[name],  # from the command line
        limit_all_gathers=True, use_orig_params=True)


def in_dicts(model, name):
    common = dict(use_orig_params=True, limit_all_gathers=True, sharding_strategy=ShardingStrategy[name])
    more = {"device_id": torch.device("cpu"), "forward_prefetch": False, "sync_module_states": False}
    return FSDP(model, **common, **more)
