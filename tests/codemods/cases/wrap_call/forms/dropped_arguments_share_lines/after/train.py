import functools

import torch

from fsdp2_sharding import ShardingStrategy, shard_model, size_based_auto_wrap_policy


def at_the_end(model, size, name):
    policy = functools.partial(size_based_auto_wrap_policy, min_num_params=size)
    model = shard_model(
        model, auto_wrap_policy=policy, sharding_strategy=ShardingStrategy[name]
    )
    return model


def with_a_last_comma(model, name):
    return shard_model(
        model,
        sharding_strategy=ShardingStrategy[name],
    )


def in_the_middle(model, name):
    return shard_model(
        model, sharding_strategy=ShardingStrategy[name],
    )


def with_a_comment(model, name):
    return shard_model(
        model,
        sharding_strategy=ShardingStrategy[name],  # from the command line
        )


def in_dicts(model, name):
    common = dict(sharding_strategy=ShardingStrategy[name])
    more = {"device_id": torch.device("cpu")}
    return shard_model(model, **common, **more)
