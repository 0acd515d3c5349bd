"""Shard a model with FSDP2 where strategy, units and precision are chosen at run time.

Written by fsdp-migrate from this repository's FSDP1 code; plain PyTorch, yours to edit.
"""

import functools
import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

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
) -> nn.Module:
    """Shard `model` in place, unit by unit and then as a whole, and return it.

    Build the optimizer afterwards.
    """
    device = training_device(device_id)
    options: dict[str, Any] = {"mesh": make_mesh(device)}
    units = []
    if auto_wrap_policy is not None:
        units = find_units(model, auto_wrap_policy)
    for unit in units:
        fully_shard(unit, **options)
    fully_shard(model, **options)
    return model


@torch.no_grad()
def clip_grad_norm_(
    parameters: Iterable[nn.Parameter], max_norm: float, norm_type: float = 2.0
) -> torch.Tensor:
    """Clip by the norm of the whole gradient, summed up in float32; return the norm.

    Gradients may be of low precision, on several meshes, or not sharded at all.
    """
    norm_type = float(norm_type)
    gradients = [p.grad for p in parameters if p.grad is not None]
    if not gradients:
        return torch.tensor(0.0)
    groups: dict[tuple[object, ...], list[torch.Tensor]] = {}
    for gradient in gradients:
        key: tuple[object, ...] = ()
        if isinstance(gradient, DTensor):
            key = (gradient.device_mesh, gradient.placements)
        groups.setdefault(key, []).append(gradient)
    total = torch.zeros((), device=gradients[0].device)
    for group in groups.values():
        local = [g.to_local() if isinstance(g, DTensor) else g for g in group]
        norms = [
            torch.linalg.vector_norm(g, norm_type, dtype=torch.float32)
            for g in local
            if g.numel()
        ]
        norm = (
            torch.linalg.vector_norm(torch.stack(norms), norm_type)
            if norms
            else torch.zeros_like(total)
        )
        norm = norm if math.isinf(norm_type) else norm**norm_type
        if isinstance(group[0], DTensor):
            for dim, placement in enumerate(group[0].placements):
                # A strided shard is no `is_shard()`.
                if not placement.is_replicate():
                    operation = (
                        dist.ReduceOp.MAX
                        if math.isinf(norm_type)
                        else dist.ReduceOp.SUM
                    )
                    dist.all_reduce(
                        norm, op=operation, group=group[0].device_mesh.get_group(dim)
                    )
        total = torch.maximum(total, norm) if math.isinf(norm_type) else total + norm
    if not math.isinf(norm_type):
        total = total ** (1.0 / norm_type)
    factor = torch.clamp(max_norm / (total + 1e-6), max=1.0)
    for gradient in gradients:
        part = gradient.to_local() if isinstance(gradient, DTensor) else gradient
        part.mul_(factor.to(part.device, part.dtype))
    return total.to(functools.reduce(torch.promote_types, [g.dtype for g in gradients]))
