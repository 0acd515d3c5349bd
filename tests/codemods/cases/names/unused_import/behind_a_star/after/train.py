import torch

from fsdp2_sharding import BackwardPrefetch, ShardingStrategy, shard_model
from policies import size_policy


def prepare(model, cfg):
    print(BackwardPrefetch)
    return shard_model(
        model,
        auto_wrap_policy=size_policy(cfg),
        sharding_strategy=ShardingStrategy[cfg.strategy],
        device_id=torch.device(cfg.device),
    )
