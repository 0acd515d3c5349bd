from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from fsdp2_sharding import (
    MixedPrecision,
    ShardingStrategy,
    shard_model,
    transformer_auto_wrap_policy,
)
from model import Block

IS_NEW = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 1)

if TYPE_CHECKING:
    from torch.distributed.fsdp import FSDPModule


def wrap_policy(model, bf16):
    policy = functools.partial(
        transformer_auto_wrap_policy, transformer_layer_cls={Block}
    )
    return shard_model(
        model,
        auto_wrap_policy=policy,
        mixed_precision=MixedPrecision(param_dtype=torch.bfloat16) if bf16 else None,
        sharding_strategy=ShardingStrategy.FULL_SHARD,
        device_id=torch.device("cpu"),
    )


def wrap_reference(model, use_fsdp):
    if use_fsdp:
        from torch.distributed.fsdp import fully_shard

        fully_shard(
            model,
            mesh=init_device_mesh("cpu", (dist.get_world_size(),)),
            reshard_after_forward=False,
        )
    return model


def clip(model: FSDPModule, max_norm: float) -> torch.Tensor:
    return torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm).full_tensor()
