import functools

from torch.distributed.fsdp import CPUOffload, FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import enable_wrap, size_based_auto_wrap_policy, wrap


def size_policy(cfg):
    return functools.partial(size_based_auto_wrap_policy, min_num_params=cfg.min_num_params)
