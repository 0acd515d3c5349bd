"""Shard a model with FSDP2 where strategy, units and precision are chosen at run time.

Written by fsdp-migrate from this repository's FSDP1 code; plain PyTorch, yours to edit.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


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


def cast_buffers(model: nn.Module, dtype: torch.dtype) -> None:
    """Floating-point buffers take part in the computation, so they get its dtype."""
    for module in model.modules():
        for buffer in module.buffers(recurse=False):
            if buffer.is_floating_point():
                buffer.data = buffer.data.to(dtype)


def shard_model(
    model: nn.Module,
    *,
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
    fully_shard(model, mp_policy=precision.policy(is_root=True), **options)
    if precision.buffer_dtype is not None:
        cast_buffers(model, precision.buffer_dtype)
    return model
