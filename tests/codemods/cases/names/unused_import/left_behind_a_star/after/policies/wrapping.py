import functools

# TODO(fsdp-migrate FM516): shard with `fully_shard` in place; a sharded module is an
#   `FSDPModule`
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy
from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy


def size_policy(cfg):
    # TODO(fsdp-migrate FM516): rewrite this by hand for `fully_shard`
    return functools.partial(size_based_auto_wrap_policy, min_num_params=cfg.min_num_params)
