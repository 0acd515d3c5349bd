"""Shard a model with FSDP2 where strategy, units and precision are chosen at run time.

Written by fsdp-migrate from this repository's FSDP1 code; plain PyTorch, yours to edit.
"""

import enum
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn


class ShardingStrategy(enum.Enum):
    """What FSDP1 called the strategies; the names configuration files use."""

    FULL_SHARD = enum.auto()
    SHARD_GRAD_OP = enum.auto()
    NO_SHARD = enum.auto()
    HYBRID_SHARD = enum.auto()
    _HYBRID_SHARD_ZERO2 = enum.auto()


@dataclass(frozen=True)
class MixedPrecision:
    """Compute, gradient-reduction and buffer dtypes; `None` keeps the stored dtype."""

    param_dtype: torch.dtype | None = None
    reduce_dtype: torch.dtype | None = None
    buffer_dtype: torch.dtype | None = None


def lambda_auto_wrap_policy(
    module: nn.Module,
    recurse: bool,
    nonwrapped_numel: int,
    lambda_fn: Callable[[nn.Module], bool],
) -> bool:
    """Modules for which `lambda_fn` is true are units."""
    return recurse or bool(lambda_fn(module))
