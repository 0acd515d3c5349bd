"""One rank of a trainer: a CPU that stands in for a GPU, a note of every loss, then the script as it is.

    python rank.py JOB.json

with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set. Writes `rank<N>.json` beside the job: every loss that
`backward` was called on (in hexadecimal, so that no bit is lost), the number of optimizer steps, and how many
tensors moved.
"""

from __future__ import annotations

import json
import os
import random
import runpy
import sys
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from fsdp_migrate.verify import fsdp1_on_cpu, rehearsal


class Notes:
    """What one rank has seen."""

    def __init__(self) -> None:
        self.losses: list[str] = []
        self.steps = 0
        self.moved = 0
        self.substitutions: set[str] = set()
        self._first: list[torch.Tensor] | None = None

    def attach(self) -> None:
        """Watch `backward` and every optimizer."""
        backward = torch.Tensor.backward

        def noted(loss: torch.Tensor, *arguments: Any, **keywords: Any) -> None:
            if torch.overrides.has_torch_function_unary(loss):
                backward(loss, *arguments, **keywords)  # comes here again from the rehearsal's mode
                return
            self.losses.append(float(loss.detach()).hex())
            backward(loss, *arguments, **keywords)

        torch.Tensor.backward = noted  # type: ignore[method-assign]
        register_optimizer_step_pre_hook(self._before)
        register_optimizer_step_post_hook(self._after)

    def _before(self, optimizer: Any, *_: object) -> None:
        if self._first is None:
            self._first = [part.clone() for part in _parts(optimizer)]

    def _after(self, optimizer: Any, *_: object) -> None:
        self.steps += 1
        assert self._first is not None
        pairs = zip(self._first, _parts(optimizer), strict=True)
        self.moved = sum(not torch.equal(first, now) for first, now in pairs)

    def write(self, path: Path) -> None:
        """Leave the record."""
        told = {"losses": self.losses, "steps": self.steps, "tensors_moved": self.moved}
        path.write_text(json.dumps({**told, "substitutions": sorted(self.substitutions)}))


def _parts(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """This rank's part of every parameter that has elements here."""
    parameters = [p.detach() for group in optimizer.param_groups for p in group["params"]]
    local = [p.to_local() if hasattr(p, "to_local") else p for p in parameters]
    return [p for p in local if p.numel()]


def run(job: dict[str, Any], notes: Notes) -> None:
    """Run the script of a job as `__main__`, in its folder, with the stubs before all other modules."""
    mode = rehearsal.OnCpu(notes.substitutions.add)
    rehearsal.apply(mode)
    fsdp1_on_cpu.apply(notes.substitutions.add)
    notes.attach()
    os.chdir(job["cwd"])
    sys.path[0:1] = [str(Path(job["script"]).parent), *job["stubs"]]
    for seed in (torch.manual_seed, random.seed, np.random.seed):
        seed(0)
    sys.argv = [job["script"], *job["arguments"]]
    with mode:
        runpy.run_path(job["preload"])
        runpy.run_path(job["script"], run_name="__main__")


def main() -> None:
    """Run, write the record, and leave without gloo's orderly exit, which aborts now and then."""
    path = Path(sys.argv[1])
    notes, status = Notes(), 0
    try:
        run(json.loads(path.read_text()), notes)
    except SystemExit as left:
        status = int(bool(left.code))
    except BaseException:
        traceback.print_exc()
        status = 1
    if torch.distributed.is_initialized() and not status:
        torch.distributed.barrier()
    notes.write(path.with_name(f"rank{os.environ['RANK']}.json"))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    main()
