"""The training loop of the reference job, the same for both arms.

Plain training code under an initialised process group: it knows nothing of the probes that watch it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh

from fsdp_migrate.verify.reference_job import ddp_arm, fsdp1_arm, fsdp2_arm
from fsdp_migrate.verify.reference_job.checkpoint import load_as_fsdp1, load_as_fsdp2, save_as_fsdp1
from fsdp_migrate.verify.reference_job.config import Arm, ReferenceConfig, hybrid_mesh_shape
from fsdp_migrate.verify.reference_job.model import Decoder
from fsdp_migrate.verify.reference_job.prepared import prepare

_log = logging.getLogger(__name__)


def run(arm: Arm, config: ReferenceConfig) -> None:
    """Train the reference model for `config.steps` optimizer steps under FSDP1 or FSDP2.

    Weights start equal on all ranks and in both arms; each rank has its own data.
    """
    device = training_device()
    fsdp: Any = {"fsdp1": fsdp1_arm, "fsdp2": fsdp2_arm, "ddp": ddp_arm}[arm]
    hybrid_mesh = None
    if config.strategy == "hybrid_shard":
        shape = hybrid_mesh_shape(
            dist.get_world_size(), int(os.environ.get("LOCAL_WORLD_SIZE", dist.get_world_size()))
        )
        hybrid_mesh = init_device_mesh(device.type, shape, mesh_dim_names=("replicate", "shard"))

    torch.manual_seed(config.seed)
    with device:  # a large model is drawn in seconds on a GPU and in minutes on a CPU
        model = Decoder(config.shape, length=config.sequence, tied=config.tied)
    prepare(model, config)
    model = fsdp.shard(model, config, device, hybrid_mesh)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=config.learning_rate, betas=(0.9, 0.95), weight_decay=0.1
    )
    done = _resume(arm, config, model, optimizer)
    for step in range(done, done + config.steps):
        loss = torch.zeros((), device=device)
        for micro in range(config.accumulate):
            with fsdp.micro_batch(model, config, is_last=micro == config.accumulate - 1):
                loss += _backward(
                    model, _sequences(config, step * config.accumulate + micro).to(device), config
                )
        if config.clip is not None:
            norm = fsdp.clip_grad_norm(model, config.clip)
            _log.info("step %d: gradient norm %r", step + 1, norm.item())
        optimizer.step()
        optimizer.zero_grad()
        _log.info("step %d: loss %r", step + 1, loss.item())
    if config.save and arm == "fsdp1":
        save_as_fsdp1(Path(config.save), model, optimizer, done + config.steps)


def _resume(arm: Arm, config: ReferenceConfig, model: Any, optimizer: torch.optim.Optimizer) -> int:
    """Load what the arm resumes from, if anything; steps that were made before."""
    if not config.old or arm == "ddp":  # whose speed alone is of interest
        return 0
    if arm == "fsdp1":
        return load_as_fsdp1(Path(config.old), model, optimizer)
    return load_as_fsdp2(Path(config.new), model, optimizer)


def run_on_meta(
    arm: Arm, config: ReferenceConfig, device: torch.device, after_step: Callable[[], None]
) -> int:
    """Train a model that is built on the meta device and filled with zeros once it is sharded.

    For measuring memory: the whole model never exists, and what is computed means nothing.

    Returns:
        Elements of all parameters.
    """
    fsdp = fsdp1_arm if arm == "fsdp1" else fsdp2_arm
    with torch.device("meta"):
        model = Decoder(config.shape, length=config.sequence, tied=config.tied)
    numel = sum(parameter.numel() for parameter in model.parameters())
    prepare(model, config)
    model = fsdp.shard_from_meta(model, config, device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.learning_rate)
    tokens = torch.zeros(config.batch, config.sequence + 1, dtype=torch.int64, device=device)
    for _ in range(config.steps):
        _backward(model, tokens, config)
        if config.clip is not None:
            fsdp.clip_grad_norm(model, config.clip)
        optimizer.step()
        optimizer.zero_grad()
        after_step()
    return numel


def training_device() -> torch.device:
    """This rank's GPU under NCCL, else the CPU."""
    if "nccl" in dist.get_backend():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def _backward(model: nn.Module, sequences: Tensor, config: ReferenceConfig) -> Tensor:
    """One micro-batch forth and back; its share of the step's loss, 0-dim and detached."""
    inputs, targets = sequences[:, :-1], sequences[:, 1:]
    logits = model(inputs)
    loss = F.cross_entropy(logits.float().flatten(0, 1), targets.flatten()) / config.accumulate
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.detach()


def _sequences(config: ReferenceConfig, index: int) -> Tensor:
    """Micro-batch `index` of this rank: int64 tokens of shape (batch, sequence + 1).

    Each sequence counts upwards by a constant of its own, so that there is something to learn.
    """
    generator = torch.Generator().manual_seed(config.seed * 1_000_003 + index * 4099 + dist.get_rank())
    vocab = config.shape.vocab
    starts = torch.randint(vocab, (config.batch, 1), generator=generator)
    strides = torch.randint(1, 8, (config.batch, 1), generator=generator)
    return (starts + strides * torch.arange(config.sequence + 1)) % vocab
