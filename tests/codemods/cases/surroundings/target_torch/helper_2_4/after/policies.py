import functools

from fsdp2_sharding import size_based_auto_wrap_policy, transformer_auto_wrap_policy
from model import Block


def get_policy(cfg):
    if cfg.policy == "size":
        return functools.partial(
            size_based_auto_wrap_policy, min_num_params=cfg.min_num_params
        )
    return functools.partial(
        transformer_auto_wrap_policy, transformer_layer_cls={Block}
    )
