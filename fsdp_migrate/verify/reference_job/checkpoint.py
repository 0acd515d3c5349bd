"""Checkpoints of the reference job: saved and loaded as FSDP1 does, and loaded as FSDP2 does.

A checkpoint is `{"model", "optim", "step"}`: one file of whole tensors, or a directory of
`torch.distributed.checkpoint`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint import state_dict_loader
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
    set_state_dict,
)
from torch.distributed.fsdp import (
    FullOptimStateDictConfig,
    FullStateDictConfig,
    FullyShardedDataParallel,
    StateDictType,
)
from torch.optim import Optimizer


def save_as_fsdp1(path: Path, model: FullyShardedDataParallel, optimizer: Optimizer, step: int) -> None:
    """Write one file; every rank calls this."""
    with FullyShardedDataParallel.state_dict_type(
        model,
        StateDictType.FULL_STATE_DICT,
        FullStateDictConfig(offload_to_cpu=True, rank0_only=True),
        FullOptimStateDictConfig(offload_to_cpu=True, rank0_only=True),
    ):
        weights = model.state_dict()
        moments = FullyShardedDataParallel.optim_state_dict(model, optimizer)
    if dist.get_rank() == 0:
        torch.save({"model": weights, "optim": moments, "step": step}, path)
    dist.barrier()


def load_as_fsdp1(path: Path, model: FullyShardedDataParallel, optimizer: Optimizer) -> int:
    """Load into a wrapped model and its optimizer; steps that were made before."""
    if path.is_dir():
        return _load_sharded(path, model, optimizer)
    held: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    with FullyShardedDataParallel.state_dict_type(model, StateDictType.FULL_STATE_DICT):
        model.load_state_dict(held["model"])
        state = FullyShardedDataParallel.optim_state_dict_to_load(model, optimizer, held["optim"])
    optimizer.load_state_dict(state)
    return int(held["step"])


def load_as_fsdp2(path: Path, model: nn.Module, optimizer: Optimizer) -> int:
    """The same for a sharded model, from what `convert-ckpt` writes."""
    if path.is_dir():
        return _load_sharded(path, model, optimizer)
    held: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    whole = StateDictOptions(full_state_dict=True)
    set_model_state_dict(model, held["model"], options=whole)
    set_optimizer_state_dict(model, optimizer, held["optim"], options=whole)
    return int(held["step"])


def _load_sharded(path: Path, model: nn.Module, optimizer: Optimizer) -> int:
    weights, moments = get_state_dict(model, optimizer)
    held: dict[str, Any] = {"model": weights, "optim": moments, "step": 0}
    state_dict_loader.load(held, checkpoint_id=path)
    set_state_dict(model, optimizer, model_state_dict=held["model"], optim_state_dict=held["optim"])
    return int(held["step"])
