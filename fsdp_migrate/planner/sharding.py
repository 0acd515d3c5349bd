"""Both arms of a plan: the same units, dtypes and mesh under FSDP1 and under FSDP2, as `rewrite` has them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import (
    FSDPModule,
    FullyShardedDataParallel,
    MixedPrecision,
    MixedPrecisionPolicy,
    ShardingStrategy,
    fully_shard,
)
from torch.distributed.fsdp.wrap import CustomPolicy

from checkpoint_convert.readers.names import clean
from fsdp_migrate.planner.model import Settings
from fsdp_migrate.planner.own_model import OwnModel, replace_modules

_CPU = torch.device("cpu")
_FSDP1 = {
    ("full_shard", False): ShardingStrategy.FULL_SHARD,
    ("shard_grad_op", False): ShardingStrategy.SHARD_GRAD_OP,
    ("no_shard", False): ShardingStrategy.NO_SHARD,
    ("full_shard", True): ShardingStrategy.HYBRID_SHARD,
    ("shard_grad_op", True): ShardingStrategy._HYBRID_SHARD_ZERO2,
}


def checkpointed(own: OwnModel) -> OwnModel:
    """Each unit inside torch's own wrapper for activation checkpointing, which is the unit then."""
    new = {id(module): checkpoint_wrapper(module) for _, module in own.units}
    replace_modules(own.module, new)
    return replace(own, units=tuple((path, new[id(module)]) for path, module in own.units))


def uses_orig_params(own: OwnModel, settings: Settings) -> bool:
    """As asked for; else whether a unit mixes frozen and trained parameters, which FSDP1 needs it for."""
    if settings.use_orig_params is not None:
        return settings.use_orig_params
    units = {id(module) for _, module in own.units}

    def mixed(module: nn.Module) -> bool:
        found = {one.requires_grad for one in _own_parameters(module, units)}
        return len(found) > 1

    return mixed(own.module) or any(mixed(module) for _, module in own.units)


def _own_parameters(module: nn.Module, units: set[int]) -> list[Tensor]:
    found: list[Tensor] = [one for one in module._parameters.values() if one is not None]
    for child in module._modules.values():
        if child is not None and id(child) not in units:
            found += _own_parameters(child, units)
    return found


def shard_fsdp1(own: OwnModel, settings: Settings, mesh: DeviceMesh, *, use_orig_params: bool) -> nn.Module:
    """Wrap the units and the whole with `FullyShardedDataParallel`."""
    units = {id(module) for _, module in own.units}
    precision = None
    if settings.param_dtype or settings.reduce_dtype:
        precision = MixedPrecision(_dtype(settings.param_dtype), _dtype(settings.reduce_dtype))
    is_hybrid = settings.replicate > 1
    return FullyShardedDataParallel(
        own.module,
        sharding_strategy=_FSDP1[settings.strategy, is_hybrid],
        auto_wrap_policy=CustomPolicy(lambda module: id(module) in units),
        mixed_precision=precision,
        device_id=_CPU,
        device_mesh=mesh if is_hybrid else None,
        use_orig_params=use_orig_params,
    )


def shard_fsdp2(own: OwnModel, settings: Settings, mesh: DeviceMesh) -> nn.Module:
    """Shard the units and the whole with `fully_shard`."""
    precision = MixedPrecisionPolicy(
        param_dtype=_dtype(settings.param_dtype),
        reduce_dtype=_dtype(settings.reduce_dtype or settings.param_dtype),
        cast_forward_inputs=False,
    )
    options: dict[str, Any] = {"mesh": mesh}
    if settings.strategy == "shard_grad_op":
        options["reshard_after_forward"] = False
    units = {id(module) for _, module in own.units}
    for module in reversed(list(own.module.modules())):  # children before parents
        if id(module) in units:
            fully_shard(module, mp_policy=precision, **options)
    fully_shard(own.module, mp_policy=replace(precision, cast_forward_inputs=True), **options)
    return own.module


def mesh_of(settings: Settings) -> DeviceMesh:
    """The mesh of FSDP2; of FSDP1 where it is hybrid. Made outside of fake tensors: it reads values."""
    if settings.strategy == "no_shard":
        shape: tuple[int, ...] = (settings.world, 1)
    elif settings.replicate > 1:
        shape = (settings.replicate, settings.shard)
    else:
        shape = (settings.world,)
    return init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard")[-len(shape) :])


def units_of(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """FQN and module of every unit of a sharded model, the root not among them."""
    kinds = (FSDPModule, FullyShardedDataParallel)
    named: list[tuple[str, nn.Module]] = list(model.named_modules())
    units = {id(module) for _, module in named if isinstance(module, kinds)}
    return [(clean(path), module) for path, module in named if path and id(module) in units]


def clip_gradients(model: nn.Module) -> None:
    """To a norm of 1, with the implementation that GPUs take."""
    if isinstance(model, FullyShardedDataParallel):
        model.clip_grad_norm_(1.0)
    else:
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)


def _dtype(name: str | None) -> torch.dtype | None:
    return None if name is None else getattr(torch, name)
