"""The FSDP1 arm: `FullyShardedDataParallel` as its documentation shows it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import CPUOffload, FullyShardedDataParallel, MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

from fsdp_migrate.verify.reference_job.config import ReferenceConfig
from fsdp_migrate.verify.reference_job.model import DecoderLayer

_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def shard(
    model: nn.Module,
    config: ReferenceConfig,
    device: torch.device,
    hybrid_mesh: DeviceMesh | None,
    *,
    fill: Callable[[nn.Module], None] | None = None,
) -> FullyShardedDataParallel:
    """Wrap every decoder layer, then the model.

    Args:
        fill: gives the tensors of one module memory and values, where they are on the meta device.
    """
    precision = None
    if config.dtype == "bf16":
        precision = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=_DTYPES[config.reduce_dtype])
    return FullyShardedDataParallel(
        model,
        sharding_strategy=ShardingStrategy[config.strategy.upper()],
        auto_wrap_policy=ModuleWrapPolicy({DecoderLayer}),
        mixed_precision=precision,
        cpu_offload=CPUOffload(offload_params=config.offload),
        param_init_fn=fill,
        device_id=device,
        device_mesh=hybrid_mesh,
        use_orig_params=True,
    )


def shard_from_meta(
    model: nn.Module, config: ReferenceConfig, device: torch.device
) -> FullyShardedDataParallel:
    """Shard a model on the meta device; its weights are zeros."""

    def fill(module: nn.Module) -> None:
        module.to_empty(device=device, recurse=False)
        for tensor in (*module.parameters(recurse=False), *module.buffers(recurse=False)):
            tensor.data.zero_()

    return shard(model, config, device, None, fill=fill)


def micro_batch(
    model: FullyShardedDataParallel, config: ReferenceConfig, *, is_last: bool
) -> AbstractContextManager[None]:
    """Around one micro-batch: gradients are reduced with the last."""
    if is_last:
        return nullcontext()
    context: AbstractContextManager[None] = model.no_sync()
    return context


def clip_grad_norm(model: FullyShardedDataParallel, max_norm: float) -> Tensor:
    """Clip the gradients; the total norm, 0-dim."""
    return model.clip_grad_norm_(max_norm)
