import functools

from trainer.fsdp2_sharding import size_based_auto_wrap_policy


def policy(cfg):
    return functools.partial(size_based_auto_wrap_policy, min_num_params=cfg.min_num_params)
