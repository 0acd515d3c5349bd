"""Shard a model with FSDP2 where strategy, units and precision are chosen at run time.

Written by fsdp-migrate from this repository's FSDP1 code; plain PyTorch, yours to edit.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.utils.checkpoint import checkpoint

WrapPolicy = Callable[..., bool]
"""Called with `module`, `recurse` and `nonwrapped_numel`; see `find_units`."""


def size_based_auto_wrap_policy(
    module: nn.Module,
    recurse: bool,
    nonwrapped_numel: int,
    min_num_params: int = int(1e8),
    force_leaf_modules: set[type[nn.Module]] | None = None,
    exclude_wrap_modules: set[type[nn.Module]] | None = None,
) -> bool:
    """Modules with at least `min_num_params` parameters in no unit yet are units."""
    if recurse:
        passed_over = force_leaf_modules or {nn.MultiheadAttention}
    else:
        passed_over = exclude_wrap_modules or {nn.ModuleList, nn.ModuleDict}
    return nonwrapped_numel >= min_num_params and not isinstance(
        module, tuple(passed_over)
    )


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


def make_mesh(device: torch.device) -> DeviceMesh:
    """1-D mesh of every rank."""
    return init_device_mesh(
        device.type, (dist.get_world_size(),), mesh_dim_names=("shard",)
    )


def shard_model(
    model: nn.Module,
    *,
    auto_wrap_policy: WrapPolicy | None = None,
    device_id: int | torch.device | None = None,
    device_mesh: DeviceMesh | None = None,
) -> nn.Module:
    """Shard `model` in place, unit by unit and then as a whole, and return it.

    Build the optimizer afterwards.
    """
    device = training_device(device_id)
    options: dict[str, Any] = {"mesh": device_mesh or make_mesh(device)}
    units = []
    if auto_wrap_policy is not None:
        units = find_units(model, auto_wrap_policy)
    for unit in units:
        fully_shard(unit, **options)
    fully_shard(model, **options)
    return model


def checkpoint_units(model: nn.Module) -> None:
    """Units compute their activations again in the backward pass, to save memory.

    Those that hold no others, and only what they compute: FSDP gathers and casts around
    it, and parameters keep their names.
    """
    units = [m for m in model.modules() if isinstance(m, FSDPModule) and m is not model]
    for unit in units:
        if sum(isinstance(m, FSDPModule) for m in unit.modules()) == 1:
            unit.forward = functools.partial(
                checkpoint, unit.forward, use_reentrant=False
            )


def prefetch_units(model: nn.Module, ahead: int) -> None:
    """While a unit computes, the parameters of the next `ahead` units are gathered.

    Units have to run in the order of the modules; each costs the memory of its
    parameters a little longer.
    """
    units: list[FSDPModule] = [
        m for m in model.modules() if isinstance(m, FSDPModule) and m is not model
    ]
    for i, unit in enumerate(units):
        unit.set_modules_to_forward_prefetch(units[i + 1 : i + 1 + ahead])
        unit.set_modules_to_backward_prefetch(units[max(i - ahead, 0) : i][::-1])
