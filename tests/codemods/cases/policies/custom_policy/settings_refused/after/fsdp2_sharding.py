"""Shard a model with FSDP2 where strategy, units and precision are chosen at run time.

Written by fsdp-migrate from this repository's FSDP1 code; plain PyTorch, yours to edit.
"""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class MixedPrecision:
    """Compute, gradient-reduction and buffer dtypes; `None` keeps the stored dtype."""

    param_dtype: torch.dtype | None = None
    reduce_dtype: torch.dtype | None = None
    buffer_dtype: torch.dtype | None = None
