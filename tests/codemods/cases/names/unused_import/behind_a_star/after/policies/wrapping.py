import functools

from fsdp2_sharding import size_based_auto_wrap_policy


def size_policy(cfg):
    return functools.partial(size_based_auto_wrap_policy, min_num_params=cfg.min_num_params)
