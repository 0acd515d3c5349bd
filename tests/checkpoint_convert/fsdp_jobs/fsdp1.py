"""An FSDP1 job: trains, saves every kind of checkpoint, trains on, and writes down where it ended.

Arguments: output directory. One run per `use_orig_params`, in folders `flat` and `orig`.
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.fsdp import (
    FullOptimStateDictConfig,
    FullStateDictConfig,
    LocalOptimStateDictConfig,
    LocalStateDictConfig,
    ShardedOptimStateDictConfig,
    ShardedStateDictConfig,
    StateDictType,
)
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

from tests.checkpoint_convert.fsdp_jobs.model import Block, build, loss_of

BEFORE, AFTER = 3, 3


def main(out: Path) -> None:
    warnings.filterwarnings("ignore")
    dist.init_process_group("gloo")
    for name, use_orig_params in (("flat", False), ("orig", True)):
        folder = out / name
        folder.mkdir(exist_ok=True)
        run(folder, use_orig_params)
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)  # gloo's threads abort the interpreter now and then at exit


def run(folder: Path, use_orig_params: bool) -> None:
    rank = dist.get_rank()
    model = FSDP(
        build(),
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        device_id=torch.device("cpu"),
        use_orig_params=use_orig_params,
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, betas=(0.8, 0.9))
    train(model, optimizer, range(BEFORE))
    save(folder, model, optimizer, use_orig_params)
    losses = train(model, optimizer, range(BEFORE, BEFORE + AFTER))
    weights, _ = full(model, optimizer)
    if rank == 0:
        torch.save(weights, folder / "end.pt")
    torch.save(losses, folder / f"losses_{rank}.pt")


def train(model: FSDP, optimizer: torch.optim.Optimizer, steps: range) -> list[float]:
    losses = []
    for step in steps:
        optimizer.zero_grad()
        loss = loss_of(model, step, dist.get_rank())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def full(model: FSDP, optimizer: torch.optim.Optimizer) -> tuple[dict, dict]:
    # offload_to_cpu=False: on CPU the default returns every state aliased to the last one.
    with FSDP.state_dict_type(
        model,
        StateDictType.FULL_STATE_DICT,
        FullStateDictConfig(offload_to_cpu=False, rank0_only=False),
        FullOptimStateDictConfig(offload_to_cpu=False, rank0_only=False),
    ):
        return dict(model.state_dict()), FSDP.optim_state_dict(model, optimizer)


def save(folder: Path, model: FSDP, optimizer: torch.optim.Optimizer, use_orig_params: bool) -> None:
    rank = dist.get_rank()
    weights, state = full(model, optimizer)
    if rank == 0:
        torch.save({"model": weights, "optimizer": state, "epoch": 7}, folder / "full.pt")
        torch.save({"model": weights, "optimizer": state}, folder / "truth.pt")
        if not use_orig_params:
            steps = {id(entry["step"]) for entry in state["state"].values()}
            assert len(steps) < len(state["state"]), "the steps of a flat unit should be one shared tensor"
    with FSDP.state_dict_type(
        model,
        StateDictType.LOCAL_STATE_DICT,
        LocalStateDictConfig(),
        LocalOptimStateDictConfig(offload_to_cpu=False),
    ):
        torch.save(model.state_dict(), folder / f"local_rank{rank}.pt")
    with FSDP.state_dict_type(
        model,
        StateDictType.SHARDED_STATE_DICT,
        ShardedStateDictConfig(offload_to_cpu=False),
        ShardedOptimStateDictConfig(offload_to_cpu=False),
    ):
        sharded = {"model": model.state_dict(), "optimizer": FSDP.optim_state_dict(model, optimizer)}
        torch.save(sharded, folder / f"sharded_rank{rank}.pt")
    torch.save(optimizer.state_dict(), folder / f"raw_optim_rank{rank}.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
