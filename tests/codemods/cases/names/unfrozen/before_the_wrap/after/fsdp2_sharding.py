"""Shard a model with FSDP2 where strategy, units and precision are chosen at run time.

Written by fsdp-migrate from this repository's FSDP1 code; plain PyTorch, yours to edit.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


@dataclass(frozen=True)
class MixedPrecision:
    """Compute and gradient-reduction dtypes; `None` keeps the stored dtype."""

    param_dtype: torch.dtype | None = None
    reduce_dtype: torch.dtype | None = None

    def policy(self, *, is_root: bool) -> MixedPrecisionPolicy:
        """Inputs are cast once, at the root: units get side inputs as they come."""
        return MixedPrecisionPolicy(
            param_dtype=self.param_dtype,
            reduce_dtype=self.reduce_dtype or self.param_dtype,
            cast_forward_inputs=is_root,
        )


def shard_model(
    model: nn.Module,
    *,
    mixed_precision: MixedPrecision | None = None,
) -> nn.Module:
    """Shard `model` in place, unit by unit and then as a whole, and return it.

    Build the optimizer afterwards.
    """
    precision = mixed_precision or MixedPrecision()
    if not isinstance(precision, MixedPrecision):
        raise TypeError("mixed_precision is not the MixedPrecision of this module")
    options: dict[str, Any] = {}
    fully_shard(model, mp_policy=precision.policy(is_root=True), **options)
    return model
