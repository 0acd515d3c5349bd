"""An FSDP2 job: loads each converted directory as a user would, writes down what it holds, and trains on.

Arguments: output directory, training steps `first:last` or `-`, then directories. Per directory it writes
`<name>.pt` (rank 0: full model and optimizer after loading; weights after training) and, per rank, losses.
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict
from torch.distributed.fsdp import FSDPModule, fully_shard

from tests.checkpoint_convert.fsdp_jobs.loaders import load
from tests.checkpoint_convert.fsdp_jobs.model import Block, build, loss_of


def main(out: Path, steps: range, directories: list[Path]) -> None:
    warnings.filterwarnings("ignore")
    dist.init_process_group("gloo")
    for directory in directories:
        resume(out, steps, directory)
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)  # gloo's threads abort the interpreter now and then at exit


def resume(out: Path, steps: range, directory: Path) -> None:
    model = build()
    for parameter in model.parameters():
        torch.nn.init.constant_(parameter, 123.0)
    for module in reversed(list(model.modules())):
        if isinstance(module, Block):
            fully_shard(module)
    fully_shard(model)
    assert isinstance(model, FSDPModule)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5.0)
    rest = load(directory.name, model, optimizer, directory)
    record = {"loaded": whole(model, optimizer), "rest": rest}
    losses = []
    for step in steps:
        optimizer.zero_grad()
        loss = loss_of(model, step, dist.get_rank())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    if steps:
        record["end"] = whole(model, optimizer)[0]
    name = f"{directory.parent.name}_{directory.name}"
    torch.save(losses, out / f"{name}_losses_{dist.get_rank()}.pt")
    if dist.get_rank() == 0:
        torch.save(record, out / f"{name}.pt")


def whole(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> tuple[dict, dict]:
    options = StateDictOptions(full_state_dict=True)
    weights, state = get_state_dict(model, optimizer, options=options)
    copied = {name: value.clone() for name, value in weights.items()}
    return copied, {
        "state": {
            name: {key: value.clone() if torch.is_tensor(value) else value for key, value in entry.items()}
            for name, entry in state["state"].items()
        },
        "param_groups": state["param_groups"],
    }


if __name__ == "__main__":
    first, _, last = sys.argv[2].partition(":")
    span = range(0) if first == "-" else range(int(first), int(last))
    main(Path(sys.argv[1]), span, [Path(argument) for argument in sys.argv[3:]])
