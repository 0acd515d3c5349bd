import torch

from fsdp2_sharding import shard_model
from policies import get_policy


def wrap_model(model, cfg):
    return shard_model(
        model,
        auto_wrap_policy=get_policy(cfg),
        sharding_strategy=cfg.strategy,
        mixed_precision=cfg.precision(),
        device_id=torch.device("cpu"),
    )
