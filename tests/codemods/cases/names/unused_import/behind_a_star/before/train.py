import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

from policies import BackwardPrefetch, ShardingStrategy, size_policy


def prepare(model, cfg):
    print(BackwardPrefetch)
    return FSDP(
        model,
        auto_wrap_policy=size_policy(cfg),
        sharding_strategy=ShardingStrategy[cfg.strategy],
        device_id=torch.device(cfg.device),
        use_orig_params=True,
    )
