"""The FSDP units of a model and their settings, under FSDP1 and FSDP2 in the same words.

Relies on `FullyShardedDataParallel` (`_handle`, `mixed_precision`, `sharding_strategy`) and on
`torch/distributed/fsdp/_fully_shard/_fsdp_state.py` (`FSDPState._mp_policy`,
`FSDPParamGroup.post_forward_mesh_info`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from fsdp_migrate.verify.probes.shards import clean_name, fsdp2_parameters
from fsdp_migrate.verify.probes.wrapping import is_fsdp1, is_fsdp2


def unit_bodies(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Clean FQN and inner module (the one whose forward the user wrote) of every unit of `model`."""
    for name, module in model.named_modules():
        if is_fsdp1(module):
            yield clean_name(name), _body(module._fsdp_wrapped_module)
        elif is_fsdp2(module):
            yield clean_name(name), _body(module)


def checkpointed_modules(model: nn.Module, prefix: str) -> list[str]:
    """Clean names of the modules under activation checkpointing."""
    under = (name for name, each in model.named_modules() if "_checkpoint_wrapped_module" in each._modules)
    return [clean_name(f"{prefix}.{name}").strip(".") for name in under]


def _body(module: Any) -> nn.Module:
    while (inner := getattr(module, "_checkpoint_wrapped_module", None)) is not None:
        module = inner
    found: nn.Module = module
    return found


def describe_units(model: nn.Module) -> list[dict[str, object]]:
    """Every unit that holds parameters: its FQN and settings, as the record keeps them."""
    found: list[dict[str, object]] = []
    for name, module in model.named_modules():
        if is_fsdp1(module) and module._handle is not None:
            found.append({"name": clean_name(name), **_fsdp1_settings(module)})
        elif is_fsdp2(module) and fsdp2_parameters(module._get_fsdp_state()):
            found.append({"name": clean_name(name), **_fsdp2_settings(module)})
    return found


def _fsdp1_settings(module: Any) -> dict[str, object]:
    precision = module.mixed_precision
    cast = bool(precision.cast_forward_inputs) or (
        bool(module._is_root) and bool(precision.cast_root_forward_inputs)
    )
    return {
        "kind": "FSDP1",
        "param_dtype": _dtype(precision.param_dtype),
        "reduce_dtype": _dtype(precision.reduce_dtype or precision.param_dtype),
        "casts_inputs": cast and precision.param_dtype is not None,
        "strategy": str(module.sharding_strategy.name),
        **_fsdp1_layout(module),
    }


def _fsdp1_layout(module: Any) -> dict[str, object]:
    """In how many shards and replicas parameters are kept, and whether they are freed after forward."""
    name, ranks = str(module.sharding_strategy.name), int(module.world_size)
    replicas = int(module._inter_node_pg.size()) if "HYBRID" in name else 1
    if name == "NO_SHARD":
        ranks, replicas = 1, ranks
    freed = name in ("FULL_SHARD", "HYBRID_SHARD") and not module._is_root
    return {"shards": ranks, "replicas": replicas, "reshards": freed}


def _fsdp2_settings(module: Any) -> dict[str, object]:
    state = module._get_fsdp_state()
    policy = state._mp_policy
    mesh = fsdp2_parameters(state)[0].sharded_param.device_mesh
    return {
        "kind": "FSDP2",
        "param_dtype": _dtype(policy.param_dtype),
        "reduce_dtype": _dtype(policy.reduce_dtype or policy.param_dtype),
        "casts_inputs": bool(policy.cast_forward_inputs) and policy.param_dtype is not None,
        "strategy": f"mesh {tuple(mesh.shape)}",
        "shards": int(mesh.size(mesh.ndim - 1)),
        "replicas": int(mesh.size(0)) if mesh.ndim > 1 else 1,
        "reshards": getattr(_group_of(state), "post_forward_mesh_info", None) is not None,
    }


def _group_of(state: Any) -> Any:
    groups = getattr(state, "_fsdp_param_groups", None)
    return groups[0] if groups else getattr(state, "_fsdp_param_group", None)


def _dtype(dtype: torch.dtype | None) -> str:
    return "" if dtype is None else str(dtype).removeprefix("torch.")


def kind_of(model: nn.Module) -> str:
    """What shards the model: "FSDP1", "FSDP2", "not sharded"."""
    modules = list(model.modules())
    if any(is_fsdp1(module) for module in modules):
        return "FSDP1"
    if any(is_fsdp2(module) for module in modules):
        return "FSDP2"
    return "not sharded"
