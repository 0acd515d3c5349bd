"""Loading a converted directory the way each `--layout`'s own library does."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_optimizer_state_dict,
    set_state_dict,
)


def load(layout: str, model: torch.nn.Module, optimizer: torch.optim.Optimizer, directory: Path) -> object:
    """Load model and optimizer; returns whatever else the library gives back."""
    loader = {"torchtitan": torchtitan, "accelerate": accelerate, "lightning": lightning}.get(layout, plain)
    return loader(model, optimizer, directory)


def plain(model: torch.nn.Module, optimizer: torch.optim.Optimizer, directory: Path) -> None:
    """torch alone."""
    state = {"model": get_model_state_dict(model), "optim": get_optimizer_state_dict(model, optimizer)}
    dcp.load(state, checkpoint_id=directory)
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"])


def accelerate(model: torch.nn.Module, optimizer: torch.optim.Optimizer, directory: Path) -> None:
    """accelerate's functions, which `Accelerator.load_state` calls under FSDP2 (it asks for a GPU itself)."""
    from accelerate import FullyShardedDataParallelPlugin, PartialState
    from accelerate.utils import load_fsdp_model, load_fsdp_optimizer

    PartialState(cpu=True)  # for its log
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2, state_dict_type="SHARDED_STATE_DICT")
    accelerator = SimpleNamespace(
        wait_for_everyone=dist.barrier,
        process_index=dist.get_rank(),
        num_processes=dist.get_world_size(),
        is_main_process=dist.get_rank() == 0,
        is_fsdp2=True,
    )
    load_fsdp_model(plugin, accelerator, model, str(directory))
    load_fsdp_optimizer(plugin, accelerator, optimizer, model, str(directory))


def lightning(model: torch.nn.Module, optimizer: torch.optim.Optimizer, directory: Path) -> object:
    """What `ModelParallelStrategy.load_checkpoint` calls."""
    from lightning.fabric.strategies.model_parallel import _load_checkpoint

    state = {"state_dict": model, "optimizer_0": optimizer}
    return _load_checkpoint(directory, state, optimizer_states_from_list=True, weights_only=True)


def torchtitan(model: torch.nn.Module, optimizer: torch.optim.Optimizer, directory: Path) -> None:
    """As `CheckpointManager.dcp_load` does: the model's entries at the top, the optimizer's flattened.

    The library itself pulls in data sets, trackers and tokenizers, so its few calls are repeated here.
    """
    flat = StateDictOptions(flatten_optimizer_state_dict=True)
    state = {
        **model.state_dict(),
        "optimizer": get_optimizer_state_dict(model, optimizer, options=flat),
    }
    dcp.load(state, checkpoint_id=directory)
    model.load_state_dict(state, strict=False)
    set_optimizer_state_dict(model, optimizer, optim_state_dict=state["optimizer"], options=flat)
