import functools

from torch.distributed.fsdp import CPUOffload, FullyShardedDataParallel as FSDP, ShardingStrategy
from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy


def size_policy(cfg):
    return functools.partial(size_based_auto_wrap_policy, min_num_params=cfg.min_num_params)
