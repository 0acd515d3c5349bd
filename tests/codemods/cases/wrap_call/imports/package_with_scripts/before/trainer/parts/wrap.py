import functools

from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy


def policy(cfg):
    return functools.partial(size_based_auto_wrap_policy, min_num_params=cfg.min_num_params)
