"""Shard a model with FSDP2 where strategy, units and precision are chosen at run time.

Written by fsdp-migrate from this repository's FSDP1 code; plain PyTorch, yours to edit.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard


def training_device() -> torch.device:
    """The current accelerator, or the CPU where there is none."""
    if not torch.accelerator.is_available():
        return torch.device("cpu")
    return torch.device(torch.accelerator.current_device_index())


def make_mesh(
    device: torch.device, group: ProcessGroup | tuple[ProcessGroup, ProcessGroup] | None
) -> DeviceMesh:
    """The mesh of a process group, or of every rank."""
    if isinstance(group, tuple):
        shard, replicate = group
        rows: list[list[int]] = [[] for _ in range(replicate.size())]
        ranks = dist.get_process_group_ranks(shard)
        dist.all_gather_object(rows, ranks, group=replicate)
        return DeviceMesh.from_group(
            [replicate, shard],
            device.type,
            mesh=rows,
            mesh_dim_names=("replicate", "shard"),
        )
    if group is not None:
        return DeviceMesh.from_group(group, device.type, mesh_dim_names=("shard",))
    return init_device_mesh(
        device.type, (dist.get_world_size(),), mesh_dim_names=("shard",)
    )


def shard_model(
    model: nn.Module,
    *,
    process_group: ProcessGroup | tuple[ProcessGroup, ProcessGroup] | None = None,
) -> nn.Module:
    """Shard `model` in place, unit by unit and then as a whole, and return it.

    Build the optimizer afterwards.
    """
    device = training_device()
    options: dict[str, Any] = {"mesh": make_mesh(device, process_group)}
    fully_shard(model, **options)
    return model
