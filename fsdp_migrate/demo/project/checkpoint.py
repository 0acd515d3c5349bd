"""Checkpoints in three formats, and how to tell them apart when resuming.

full      one file, whole tensors, written by rank 0: to export, or to continue on other hardware
sharded   a directory of torch.distributed.checkpoint: the fast one, and it loads on any number of ranks
local     one file per rank, as the tensors lie in memory: for preemption, same number of ranks only
"""

from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import FullOptimStateDictConfig, FullStateDictConfig, StateDictType
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def save_checkpoint(
    directory: Path, fmt: str, model: nn.Module, optimizer: torch.optim.Optimizer, step: int
) -> None:
    """Write `directory/<fmt>-<step>`; every rank must call this."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{fmt}-{step:06d}"
    if fmt == "full":
        save_full(path.with_suffix(".pt"), model, optimizer, step)
    elif fmt == "sharded":
        save_sharded(path, model, optimizer, step)
    elif fmt == "local":
        save_local(path, model, optimizer, step)
    else:
        raise ValueError(f"unknown checkpoint format {fmt!r}")
    dist.barrier()


def load_checkpoint(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Restore model and optimizer in place. Returns the number of steps the checkpoint has seen."""
    if path.is_file():
        return load_full(path, model, optimizer)
    if (path / ".metadata").exists():
        return load_sharded(path, model, optimizer)
    return load_local(path, model, optimizer)


def save_full(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    with FSDP.state_dict_type(
        model,
        StateDictType.FULL_STATE_DICT,
        FullStateDictConfig(offload_to_cpu=torch.cuda.is_available(), rank0_only=True),
        FullOptimStateDictConfig(offload_to_cpu=torch.cuda.is_available(), rank0_only=True),
    ):
        model_state = model.state_dict()
        optim_state = FSDP.optim_state_dict(model, optimizer)
    if dist.get_rank() == 0:
        torch.save({"model": model_state, "optim": optim_state, "step": step}, path)


def load_full(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
        model.load_state_dict(checkpoint["model"])
        optim_state = FSDP.optim_state_dict_to_load(model, optimizer, checkpoint["optim"])
        optimizer.load_state_dict(optim_state)
    return checkpoint["step"]


def save_sharded(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
        state = {
            "model": model.state_dict(),
            "optim": FSDP.optim_state_dict(model, optimizer),
            "step": step,
        }
    dcp.save(state, checkpoint_id=path)


def load_sharded(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    model_state, optim_state = get_state_dict(model, optimizer)
    state = {"model": model_state, "optim": optim_state, "step": 0}
    dcp.load(state, checkpoint_id=path)
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"])
    return state["step"]


def save_local(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    path.mkdir(exist_ok=True)
    rank = dist.get_rank()
    with FSDP.state_dict_type(model, StateDictType.LOCAL_STATE_DICT):
        model_state = model.state_dict()
    torch.save({"model": model_state, "step": step}, path / f"model_rank{rank}.pt")
    torch.save(optimizer.state_dict(), path / f"optim_rank{rank}.pt")


def load_local(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    rank = dist.get_rank()
    checkpoint = torch.load(path / f"model_rank{rank}.pt", weights_only=False)
    with FSDP.state_dict_type(model, StateDictType.LOCAL_STATE_DICT):
        model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(torch.load(path / f"optim_rank{rank}.pt", weights_only=True))
    return checkpoint["step"]
