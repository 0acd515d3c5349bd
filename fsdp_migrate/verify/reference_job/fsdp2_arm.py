"""The FSDP2 arm: `fully_shard`, equal to the FSDP1 arm in units, dtypes and communication."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from fsdp_migrate.verify.reference_job.config import ReferenceConfig
from fsdp_migrate.verify.reference_job.model import DecoderLayer

_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def shard(
    model: nn.Module, config: ReferenceConfig, device: torch.device, hybrid_mesh: DeviceMesh | None
) -> FSDPModule:
    """Shard every decoder layer, then the model, in place."""
    unit_precision = MixedPrecisionPolicy(cast_forward_inputs=False)
    if config.dtype == "bf16":
        unit_precision = replace(
            unit_precision, param_dtype=torch.bfloat16, reduce_dtype=_DTYPES[config.reduce_dtype]
        )
    # FSDP1 casts inputs at the root alone: the rotary tables reach the layers in fp32.
    root_precision = replace(unit_precision, cast_forward_inputs=True)
    # Left unset, `reshard_after_forward` frees the layers and keeps the root gathered, as FSDP1 does.
    shard_unit = partial(fully_shard, mesh=_mesh(config, device, hybrid_mesh))
    if config.offload:
        shard_unit = partial(shard_unit, offload_policy=CPUOffloadPolicy())
    if config.strategy == "shard_grad_op":
        shard_unit = partial(shard_unit, reshard_after_forward=False)
    for layer in model.modules():
        if isinstance(layer, DecoderLayer):
            shard_unit(layer, mp_policy=unit_precision)
    return shard_unit(model, mp_policy=root_precision)


def shard_from_meta(model: nn.Module, config: ReferenceConfig, device: torch.device) -> FSDPModule:
    """Shard a model on the meta device; its weights are zeros."""
    sharded = shard(model, config, device, None)
    model.to_empty(device=device)
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            tensor.zero_()
    return sharded


def _mesh(config: ReferenceConfig, device: torch.device, hybrid_mesh: DeviceMesh | None) -> DeviceMesh:
    if hybrid_mesh is not None:
        return hybrid_mesh
    world_size = dist.get_world_size()
    if config.strategy == "no_shard":
        return init_device_mesh(device.type, (world_size, 1), mesh_dim_names=("replicate", "shard"))
    return init_device_mesh(device.type, (world_size,), mesh_dim_names=("shard",))


def micro_batch(model: FSDPModule, config: ReferenceConfig, *, is_last: bool) -> AbstractContextManager[None]:
    """Before one micro-batch: gradients are reduced with the last."""
    model.set_requires_gradient_sync(is_last)
    if config.strategy == "shard_grad_op":
        # FSDP1 keeps the parameters gathered from one unreduced micro-batch to the next.
        model.set_reshard_after_backward(is_last)
    return nullcontext()


def clip_grad_norm(model: nn.Module, max_norm: float) -> Tensor:
    """Clip the gradients; the total norm, 0-dim."""
    norm = nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    return norm.full_tensor() if isinstance(norm, DTensor) else norm
