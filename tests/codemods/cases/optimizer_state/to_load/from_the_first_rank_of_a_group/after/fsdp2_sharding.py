"""Shard a model with FSDP2 where strategy, units and precision are chosen at run time.

Written by fsdp-migrate from this repository's FSDP1 code; plain PyTorch, yours to edit.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import ProcessGroup
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor


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
    device_mesh: DeviceMesh | None = None,
) -> nn.Module:
    """Shard `model` in place, unit by unit and then as a whole, and return it.

    Build the optimizer afterwards.
    """
    device = training_device()
    options: dict[str, Any] = {"mesh": device_mesh or make_mesh(device, process_group)}
    fully_shard(model, **options)
    return model


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


def load_full_optimizer(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    state: dict[str, Any],
    *,
    broadcast: bool = False,
) -> None:
    """Load whole optimizer state, from every rank or (`broadcast`) from rank 0."""
    if state:
        # One `step` tensor can be shared by many parameters: each would count it up.
        moments = {
            name: {
                k: v.clone() if isinstance(v, torch.Tensor) else v
                for k, v in values.items()
            }
            for name, values in state["state"].items()
        }
        state = {**state, "state": moments}
    sent = [
        [{**group, "params": []} for group in (state or {}).get("param_groups", ())]
    ]
    if broadcast:
        dist.broadcast_object_list(sent)
    for group, saved in zip(optimizer.param_groups, sent[0]):
        # torch stops at what only saved groups have: a schedule's `initial_lr`.
        group.update({key: saved[key] for key in saved.keys() - group.keys()})
    for group in optimizer.param_groups:
        # torch makes empty state by a step with zero gradients: 0 / (0 + eps).
        if group.get("eps") == 0:
            group["eps"] = 1.0  # until the state's own is loaded
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=broadcast)
    set_optimizer_state_dict(model, optimizer, state or {}, options=options)
