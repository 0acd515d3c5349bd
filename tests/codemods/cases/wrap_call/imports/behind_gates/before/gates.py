from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import torch

from model import Block

IS_NEW = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 1)

if IS_NEW:
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
    from torch.distributed.fsdp import MixedPrecision, ShardingStrategy
    from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

if TYPE_CHECKING:
    from torch.distributed.fsdp import FullyShardedDataParallel


def wrap_policy(model, bf16):
    policy = functools.partial(
        transformer_auto_wrap_policy, transformer_layer_cls={Block}
    )
    return FSDP(
        model,
        auto_wrap_policy=policy,
        mixed_precision=MixedPrecision(param_dtype=torch.bfloat16) if bf16 else None,
        sharding_strategy=ShardingStrategy.FULL_SHARD,
        device_id=torch.device("cpu"),
        use_orig_params=True,
    )


def wrap_reference(model, use_fsdp):
    if use_fsdp:
        if IS_NEW:
            from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
            from torch.distributed.fsdp import ShardingStrategy
        else:
            from torch.distributed.fsdp.fully_sharded_data_parallel import (
                FullyShardedDataParallel as FSDP,
            )
            from torch.distributed.fsdp.fully_sharded_data_parallel import (
                ShardingStrategy,
            )
        model = FSDP(
            model,
            sharding_strategy=ShardingStrategy.SHARD_GRAD_OP,
            device_id=torch.device("cpu"),
        )
    return model


def clip(model: FullyShardedDataParallel, max_norm: float) -> torch.Tensor:
    return model.clip_grad_norm_(max_norm)
