"""Shard a model with FSDP2 where strategy, units and precision are chosen at run time.

Written by fsdp-migrate from this repository's FSDP1 code; plain PyTorch, yours to edit.
"""

import contextlib
import enum
import functools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    fully_shard,
)
from torch.distributed.tensor import DTensor

WrapPolicy = Callable[..., bool]
"""Called with `module`, `recurse` and `nonwrapped_numel`; see `find_units`."""


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


@dataclass(frozen=True)
class CPUOffload:
    """Whether parameters, gradients and optimizer state live on the CPU."""

    offload_params: bool = False


@dataclass(frozen=True)
class MixedPrecision:
    """Compute and gradient-reduction dtypes; `None` keeps the stored dtype."""

    param_dtype: torch.dtype | None = None
    reduce_dtype: torch.dtype | None = None

    def policy(self, *, is_root: bool) -> MixedPrecisionPolicy:
        """Inputs are cast once, at the root: units get side inputs as they come."""
        return MixedPrecisionPolicy(
            param_dtype=self.param_dtype,
            reduce_dtype=self.reduce_dtype or self.param_dtype,
            cast_forward_inputs=is_root,
        )


def find_units(
    model: nn.Module,
    policy: WrapPolicy,
    ignored: set[nn.Module],
    parameters: set[nn.Parameter],
) -> list[nn.Module]:
    """Submodules that become units of their own, children before parents.

    The policy is asked twice about a module: whether to look inside, and, given how
    many of its parameters are in no unit yet, whether it is a unit itself.
    """
    units: list[nn.Module] = []
    seen: set[nn.Module] = set(ignored)

    def visit(module: nn.Module) -> int:
        """Number of the module's parameters that ended up in units."""
        seen.add(module)
        counted = (p for p in module.parameters() if p not in parameters)
        numel = sum(p.numel() for p in counted)
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
    strategy: ShardingStrategy,
    device: torch.device,
    group: ProcessGroup | tuple[ProcessGroup, ProcessGroup] | None,
) -> DeviceMesh:
    """1-D mesh, or (replicate, shard): hybrid strategies shard within a node."""
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
        if strategy is ShardingStrategy.NO_SHARD:
            column = [[rank] for rank in dist.get_process_group_ranks(group)]
            return DeviceMesh(
                device.type, column, mesh_dim_names=("replicate", "shard")
            )
        return DeviceMesh.from_group(group, device.type, mesh_dim_names=("shard",))
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


def materialize(
    unit: nn.Module, init: Callable[[nn.Module], None] | None, device: torch.device
) -> None:
    """Give a unit's meta tensors storage and values, parents before children.

    Units within it have theirs already.
    """
    modules = [unit]
    for module in modules:
        children = [m for m in module.children() if not isinstance(m, FSDPModule)]
        modules += [child for child in children if child not in modules]
    own = [
        tensor
        for module in modules
        for tensor in (*module._parameters.values(), *module._buffers.values())
        if tensor is not None
    ]
    if not any(tensor.is_meta for tensor in own):
        return
    for module in modules:
        if init is not None:
            init(module)
        elif module._parameters or module._buffers:
            module.to_empty(device=device, recurse=False)
            with torch.no_grad():
                module.reset_parameters()  # type: ignore[operator]


@torch.no_grad()
def broadcast_from_first_rank(
    unit: nn.Module, device: torch.device, mesh: DeviceMesh
) -> None:
    """Give every rank the first rank's parameters and buffers.

    What is sharded already was broadcast before.
    """
    for tensor in (*unit.parameters(), *unit.buffers()):
        if not isinstance(tensor, DTensor):
            tensor.data = tensor.data.to(device)
            for dim in range(mesh.ndim):
                group = mesh.get_group(dim)
                dist.broadcast(tensor.detach(), group=group, group_src=0)


@contextlib.contextmanager
def taken_out(model: nn.Module, parameters: set[nn.Parameter]) -> Iterator[None]:
    """Inside of the block `fully_shard` does not see these parameters.

    It neither shards nor moves them; torch 2.7 has `ignored_params` for that.
    """
    taken = [
        (module, name, parameter)
        for module in model.modules()
        for name, parameter in module._parameters.items()
        if parameter in parameters
    ]
    for module, name, _ in taken:
        module._parameters[name] = None
    try:
        yield
    finally:
        for module, name, parameter in taken:
            module._parameters[name] = parameter


def shard_model(
    model: nn.Module,
    *,
    process_group: ProcessGroup | tuple[ProcessGroup, ProcessGroup] | None = None,
    sharding_strategy: ShardingStrategy | None = None,
    cpu_offload: CPUOffload | None = None,
    auto_wrap_policy: WrapPolicy | None = None,
    mixed_precision: MixedPrecision | None = None,
    ignored_modules: Iterable[nn.Module] | None = None,
    param_init_fn: Callable[[nn.Module], None] | None = None,
    device_id: int | torch.device | None = None,
    sync_module_states: bool = False,
    forward_prefetch: bool = False,
    ignored_states: Iterable[nn.Parameter | nn.Module] | None = None,
    device_mesh: DeviceMesh | None = None,
    **without_effect: object,
) -> nn.Module:
    """Shard `model` in place, unit by unit and then as a whole, and return it.

    Build the optimizer afterwards.

    `use_orig_params`, `limit_all_gathers` and `backward_prefetch` are taken and
    have no counterpart in FSDP2.
    """
    strategy = ShardingStrategy(sharding_strategy or ShardingStrategy.FULL_SHARD)
    precision = mixed_precision or MixedPrecision()
    if not isinstance(precision, MixedPrecision):
        raise TypeError("mixed_precision is not the MixedPrecision of this module")
    device = training_device(device_id)
    mesh = device_mesh or make_mesh(strategy, device, process_group)
    options: dict[str, Any] = {"mesh": mesh}
    if strategy in (
        ShardingStrategy.SHARD_GRAD_OP,
        ShardingStrategy._HYBRID_SHARD_ZERO2,
    ):
        options["reshard_after_forward"] = False
    if cpu_offload is not None and cpu_offload.offload_params:
        options["offload_policy"] = CPUOffloadPolicy()
    ignored = list(ignored_modules or ignored_states or ())
    modules = {m for i in ignored if isinstance(i, nn.Module) for m in i.modules()}
    parameters = {p for p in ignored if isinstance(p, nn.Parameter)}
    parameters |= {p for m in modules for p in m.parameters()}
    units = []
    if auto_wrap_policy is not None:
        units = find_units(model, auto_wrap_policy, modules, parameters)
    with taken_out(model, parameters):
        for unit in [*units, model]:
            materialize(unit, param_init_fn, device)
            if sync_module_states:
                broadcast_from_first_rank(unit, device, mesh)
            fully_shard(
                unit, mp_policy=precision.policy(is_root=unit is model), **options
            )
    if forward_prefetch:
        parts = [m for m in model.modules() if isinstance(m, FSDPModule)]
        for unit, following in zip(parts, parts[1:]):
            unit.set_modules_to_forward_prefetch([following])
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
