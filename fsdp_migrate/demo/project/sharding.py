"""How the model is laid over the ranks."""

import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardingStrategy

from config import TrainConfig
from policies import PRECISIONS, get_wrap_policy


def wrap_model(model: nn.Module, config: TrainConfig, device: torch.device) -> FSDP:
    """Shard the model over all ranks. Build the optimizer from what this returns."""
    return FSDP(
        model,
        sharding_strategy=ShardingStrategy[config.sharding_strategy],
        auto_wrap_policy=get_wrap_policy(config),
        mixed_precision=PRECISIONS[config.precision],
        device_id=device,
        sync_module_states=device.type == "cuda",
        limit_all_gathers=True,
        use_orig_params=config.use_orig_params,
    )


def count_units(model: nn.Module) -> int:
    """Modules that gather and free their parameters on their own, the root included."""
    return sum(isinstance(module, FSDP) for module in model.modules())
