"""Shard a model with FSDP2 where strategy, units and precision are chosen at run time.

Written by fsdp-migrate from this repository's FSDP1 code; plain PyTorch, yours to edit.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

WrapPolicy = Callable[..., bool]
"""Called with `module`, `recurse` and `nonwrapped_numel`; see `find_units`."""


@dataclass(frozen=True)
class MixedPrecision:
    """Compute, gradient-reduction and buffer dtypes; `None` keeps the stored dtype."""

    param_dtype: torch.dtype | None = None
    reduce_dtype: torch.dtype | None = None
    buffer_dtype: torch.dtype | None = None
    cast_forward_inputs: bool = False
    cast_root_forward_inputs: bool = True
    _module_classes_to_ignore: Sequence[type[nn.Module]] = (
        nn.modules.batchnorm._BatchNorm,
    )
    keep_low_precision_grads: bool = False

    def __post_init__(self) -> None:
        if self.keep_low_precision_grads:
            raise ValueError("FSDP2 keeps gradients in the parameters' own dtype")

    def policy(self, *, is_root: bool) -> MixedPrecisionPolicy:
        """Inputs are cast once, at the root: units get side inputs as they come."""
        return MixedPrecisionPolicy(
            param_dtype=self.param_dtype,
            reduce_dtype=self.reduce_dtype or self.param_dtype,
            cast_forward_inputs=self.cast_forward_inputs
            or (is_root and self.cast_root_forward_inputs),
        )


class ModuleWrapPolicy:
    """Modules of the given classes are units."""

    def __init__(self, module_classes: Iterable[type[nn.Module]]) -> None:
        self.module_classes = tuple(module_classes)

    def __call__(
        self, module: nn.Module, recurse: bool, nonwrapped_numel: int = -1
    ) -> bool:
        return recurse or isinstance(module, self.module_classes)


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


def with_full_precision(
    policy: WrapPolicy, classes: tuple[type[nn.Module], ...]
) -> WrapPolicy:
    """A policy by which modules of `classes`, kept in full precision, are units too."""

    def is_unit(module: nn.Module, recurse: bool, nonwrapped_numel: int) -> bool:
        if recurse or isinstance(module, classes):
            return True
        return policy(module=module, recurse=False, nonwrapped_numel=nonwrapped_numel)

    return is_unit


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


def cast_buffers(
    model: nn.Module, dtype: torch.dtype, keep: tuple[type[nn.Module], ...]
) -> None:
    """Floating-point buffers take part in the computation, so they get its dtype."""
    for module in model.modules():
        if isinstance(module, keep):
            continue
        for buffer in module.buffers(recurse=False):
            if buffer.is_floating_point():
                buffer.data = buffer.data.to(dtype)


def shard_model(
    model: nn.Module,
    *,
    auto_wrap_policy: WrapPolicy | None = None,
    mixed_precision: MixedPrecision | None = None,
    device_id: int | torch.device | None = None,
) -> nn.Module:
    """Shard `model` in place, unit by unit and then as a whole, and return it.

    Build the optimizer afterwards.
    """
    precision = mixed_precision or MixedPrecision()
    if not isinstance(precision, MixedPrecision):
        raise TypeError("mixed_precision is not the MixedPrecision of this module")
    device = training_device(device_id)
    options: dict[str, Any] = {"mesh": make_mesh(device)}
    full_precision = tuple(precision._module_classes_to_ignore)
    units = []
    if auto_wrap_policy is not None:
        policy = auto_wrap_policy
        if mixed_precision is not None:
            policy = with_full_precision(policy, full_precision)
        units = find_units(model, policy)
    for unit in units:
        mp_policy = precision.policy(is_root=False)
        if mixed_precision is not None and isinstance(unit, full_precision):
            mp_policy = MixedPrecisionPolicy(
                param_dtype=torch.float32,
                reduce_dtype=torch.float32,
                output_dtype=precision.param_dtype,
            )
        fully_shard(unit, mp_policy=mp_policy, **options)
    fully_shard(model, mp_policy=precision.policy(is_root=True), **options)
    if precision.buffer_dtype is not None:
        cast_buffers(model, precision.buffer_dtype, full_precision)
    return model
