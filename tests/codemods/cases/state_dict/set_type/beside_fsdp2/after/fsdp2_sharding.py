"""What FSDP1's wrapper did in training and checkpoints, for models sharded with FSDP2.

Written by fsdp-migrate from this repository's FSDP1 code; plain PyTorch, yours to edit.
"""

import enum
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor


def full_tensors(
    state: dict[str, Any], *, offload_to_cpu: bool = False, rank0_only: bool = False
) -> dict[str, Any]:
    """A state dict with whole tensors in place of shards; every rank has to call.

    `rank0_only` is about the first of the ranks that share the tensors.
    """
    is_first = not dist.is_initialized() or dist.get_rank() == 0

    def whole(value: Any) -> Any:
        nonlocal is_first
        if isinstance(value, dict):
            return {key: whole(item) for key, item in value.items()}
        if isinstance(value, DTensor):
            is_first = not any(value.device_mesh.get_coordinate() or ())
            value = value.full_tensor()
        if rank0_only and not is_first:
            return None
        if offload_to_cpu and isinstance(value, torch.Tensor):
            return value.cpu()
        return value

    full = whole(state)
    return full if is_first or not rank0_only else {}


class StateDictType(enum.Enum):
    """What FSDP1 called the kinds of state dicts; the names configurations use."""

    FULL_STATE_DICT = enum.auto()
    LOCAL_STATE_DICT = enum.auto()
    SHARDED_STATE_DICT = enum.auto()
