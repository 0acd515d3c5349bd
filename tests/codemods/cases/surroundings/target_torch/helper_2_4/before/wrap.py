import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

from policies import get_policy


def wrap_model(model, cfg):
    return FSDP(
        model,
        auto_wrap_policy=get_policy(cfg),
        sharding_strategy=cfg.strategy,
        mixed_precision=cfg.precision(),
        device_id=torch.device("cpu"),
        limit_all_gathers=True,
        use_orig_params=True,
    )
