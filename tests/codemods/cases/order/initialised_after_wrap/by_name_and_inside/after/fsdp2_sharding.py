"""Shard a model with FSDP2 where strategy, units and precision are chosen at run time.

Written by fsdp-migrate from this repository's FSDP1 code; plain PyTorch, yours to edit.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule, fully_shard


def training_device() -> torch.device:
    """The current accelerator, or the CPU where there is none."""
    if not torch.accelerator.is_available():
        return torch.device("cpu")
    return torch.device(torch.accelerator.current_device_index())


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


def shard_model(
    model: nn.Module,
    *,
    param_init_fn: Callable[[nn.Module], None] | None = None,
) -> nn.Module:
    """Shard `model` in place, unit by unit and then as a whole, and return it.

    Build the optimizer afterwards.
    """
    device = training_device()
    options: dict[str, Any] = {}
    materialize(model, param_init_fn, device)
    fully_shard(model, **options)
    return model
