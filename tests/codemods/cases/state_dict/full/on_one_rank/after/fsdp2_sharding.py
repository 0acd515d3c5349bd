"""What FSDP1's wrapper did in training and checkpoints, for models sharded with FSDP2.

Written by fsdp-migrate from this repository's FSDP1 code; plain PyTorch, yours to edit.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor, Replicate


@contextlib.contextmanager
def summon_full_params(
    model: nn.Module,
    *,
    recurse: bool = True,
    writeback: bool = True,
    rank0_only: bool = False,
    offload_to_cpu: bool = False,
    with_grads: bool = False,
) -> Iterator[None]:
    """Whole parameters stand in place of the shards; `writeback` keeps changes.

    With `rank0_only` the other ranks keep their shards. Every rank has to enter. A
    model that runs inside gathers its parameters by itself.
    """
    nested = {
        m
        for u in model.modules()
        if u is not model and isinstance(u, FSDPModule)
        for m in u.modules()
    }
    modules = [m for m in model.modules() if recurse or m not in nested]
    units = [m for m in modules if isinstance(m, FSDPModule)]
    for unit in units:
        unit.reshard()
    whole: dict[nn.Parameter, nn.Parameter] = {}
    swapped: list[tuple[nn.Module, str, nn.Parameter]] = []
    for module in modules:
        for name, shard in list(module._parameters.items()):
            if not isinstance(shard, DTensor):
                continue
            if shard not in whole:
                device = "cpu" if offload_to_cpu else shard.device
                full = nn.Parameter(
                    shard.detach().full_tensor().to(device), shard.requires_grad
                )
                if with_grads and shard.grad is not None:
                    full.grad = shard.grad.full_tensor().to(device)
                whole[shard] = full
            is_first = not any(shard.device_mesh.get_coordinate() or ())
            if not rank0_only or is_first:
                swapped.append((module, name, shard))
                module._parameters[name] = whole[shard]
    try:
        yield
    finally:
        for unit in units:
            unit.reshard()
        for module, name, shard in swapped:
            module._parameters[name] = shard
        if writeback and not rank0_only:
            for shard, full in whole.items():
                _write_shard(shard.detach(), full.detach())
                if with_grads and shard.grad is not None and full.grad is not None:
                    _write_shard(shard.grad, full.grad)


def _write_shard(shard: torch.Tensor, full: torch.Tensor) -> None:
    """Copy this rank's part of a whole tensor into its shard."""
    assert isinstance(shard, DTensor)
    mesh = shard.device_mesh
    replicated = DTensor.from_local(
        full.to(shard.device), mesh, [Replicate()] * mesh.ndim
    )
    shard.to_local().copy_(
        replicated.redistribute(placements=shard.placements).to_local()
    )


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
