"""Shard a model with FSDP2 where strategy, units and precision are chosen at run time.

Written by fsdp-migrate from this repository's FSDP1 code; plain PyTorch, yours to edit.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard


def training_device(device_id: int | torch.device | None) -> torch.device:
    """The device to train on, made the current one: `fully_shard` uses that."""
    if isinstance(device_id, torch.device):
        device = device_id
    elif not torch.accelerator.is_available():
        return torch.device("cpu")
    else:
        index = torch.accelerator.current_device_index()
        device = torch.device(index if device_id is None else device_id)
    if device.type != "cpu" and device.index is not None:
        torch.accelerator.set_device_index(device.index)
    return device


def make_mesh(device: torch.device) -> DeviceMesh:
    """1-D mesh of every rank."""
    return init_device_mesh(
        device.type, (dist.get_world_size(),), mesh_dim_names=("shard",)
    )


def shard_model(
    model: nn.Module,
    *,
    device_id: int | torch.device | None = None,
) -> nn.Module:
    """Shard `model` in place, unit by unit and then as a whole, and return it.

    Build the optimizer afterwards.
    """
    device = training_device(device_id)
    options: dict[str, Any] = {"mesh": make_mesh(device)}
    fully_shard(model, **options)
    return model
