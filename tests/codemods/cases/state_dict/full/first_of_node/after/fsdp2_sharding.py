"""Shard a model with FSDP2 where strategy, units and precision are chosen at run time.

Written by fsdp-migrate from this repository's FSDP1 code; plain PyTorch, yours to edit.
"""

import enum
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard


class ShardingStrategy(enum.Enum):
    """What FSDP1 called the strategies; the names configuration files use."""

    FULL_SHARD = enum.auto()
    SHARD_GRAD_OP = enum.auto()
    NO_SHARD = enum.auto()
    HYBRID_SHARD = enum.auto()
    _HYBRID_SHARD_ZERO2 = enum.auto()

    @classmethod
    def _missing_(cls, value: object) -> object:
        """A member of FSDP1's own enum, or of another module like this, by name."""
        return cls.__members__.get(value.name) if isinstance(value, enum.Enum) else None


def training_device() -> torch.device:
    """The current accelerator, or the CPU where there is none."""
    if not torch.accelerator.is_available():
        return torch.device("cpu")
    return torch.device(torch.accelerator.current_device_index())


def make_mesh(strategy: ShardingStrategy, device: torch.device) -> DeviceMesh:
    """1-D mesh, or (replicate, shard): hybrid strategies shard within a node."""
    world_size = dist.get_world_size()
    if strategy is ShardingStrategy.NO_SHARD:
        shape = (world_size, 1)
    elif strategy in (
        ShardingStrategy.HYBRID_SHARD,
        ShardingStrategy._HYBRID_SHARD_ZERO2,
    ):
        per_node = getattr(torch, device.type).device_count()
        shape = (world_size // per_node, per_node)
    else:
        return init_device_mesh(device.type, (world_size,), mesh_dim_names=("shard",))
    return init_device_mesh(device.type, shape, mesh_dim_names=("replicate", "shard"))


def shard_model(
    model: nn.Module,
    *,
    sharding_strategy: ShardingStrategy | None = None,
) -> nn.Module:
    """Shard `model` in place, unit by unit and then as a whole, and return it.

    Build the optimizer afterwards.
    """
    strategy = ShardingStrategy(sharding_strategy or ShardingStrategy.FULL_SHARD)
    device = training_device()
    options: dict[str, Any] = {"mesh": make_mesh(strategy, device)}
    if strategy in (
        ShardingStrategy.SHARD_GRAD_OP,
        ShardingStrategy._HYBRID_SHARD_ZERO2,
    ):
        options["reshard_after_forward"] = False
    fully_shard(model, **options)
    return model
