"""The DDP arm: whole weights on every rank, for the comparison of speed and memory alone."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parallel import DistributedDataParallel

from fsdp_migrate.verify.reference_job.config import ReferenceConfig


def shard(
    model: nn.Module, config: ReferenceConfig, device: torch.device, _mesh: DeviceMesh | None
) -> DistributedDataParallel:
    """Wrap the model; what the other arms compute in bfloat16 runs under autocast."""
    if config.dtype == "bf16":
        model.forward = torch.autocast(device.type, torch.bfloat16)(model.forward)
    replicated = DistributedDataParallel(model)
    if config.dtype == "bf16" and config.reduce_dtype == "bf16":
        replicated.register_comm_hook(None, default_hooks.bf16_compress_hook)
    return replicated


def micro_batch(
    model: DistributedDataParallel, config: ReferenceConfig, *, is_last: bool
) -> AbstractContextManager[None]:
    """Around one micro-batch: gradients are reduced with the last."""
    if is_last:
        return nullcontext()
    context: AbstractContextManager[None] = model.no_sync()
    return context


def clip_grad_norm(model: nn.Module, max_norm: float) -> Tensor:
    """Clip the gradients; the total norm, 0-dim."""
    return nn.utils.clip_grad_norm_(model.parameters(), max_norm)
