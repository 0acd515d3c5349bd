"""Shard a model with FSDP2 where strategy, units and precision are chosen at run time.

Written by fsdp-migrate from this repository's FSDP1 code; plain PyTorch, yours to edit.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, Replicate

WrapPolicy = Callable[..., bool]
"""Called with `module`, `recurse` and `nonwrapped_numel`; see `find_units`."""


def transformer_auto_wrap_policy(
    module: nn.Module,
    recurse: bool,
    nonwrapped_numel: int,
    transformer_layer_cls: Iterable[type[nn.Module]],
) -> bool:
    """Modules of the given classes are units."""
    return recurse or isinstance(module, tuple(transformer_layer_cls))


def find_units(model: nn.Module, policy: WrapPolicy) -> list[nn.Module]:
    """Submodules that become units of their own, children before parents.

    The policy is asked twice about a module: whether to look inside, and, given how
    many of its parameters are in no unit yet, whether it is a unit itself.
    """
    units: list[nn.Module] = []
    seen: set[nn.Module] = set()

    def visit(module: nn.Module) -> int:
        """Number of the module's parameters that ended up in units."""
        seen.add(module)
        numel = sum(p.numel() for p in module.parameters())
        if not policy(module=module, recurse=True, nonwrapped_numel=numel):
            return 0
        in_units = sum(visit(child) for child in module.children() if child not in seen)
        left = numel - in_units
        if module is not model and policy(
            module=module, recurse=False, nonwrapped_numel=left
        ):
            units.append(module)
            return numel
        return in_units

    visit(model)
    return units


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
    auto_wrap_policy: WrapPolicy | None = None,
    device_id: int | torch.device | None = None,
) -> nn.Module:
    """Shard `model` in place, unit by unit and then as a whole, and return it.

    Build the optimizer afterwards.
    """
    device = training_device(device_id)
    options: dict[str, Any] = {"mesh": make_mesh(device, process_group)}
    units = []
    if auto_wrap_policy is not None:
        units = find_units(model, auto_wrap_policy)
    for unit in units:
        fully_shard(unit, **options)
    fully_shard(model, **options)
    return model


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
