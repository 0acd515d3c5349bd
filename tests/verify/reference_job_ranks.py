"""Runs both arms of the reference job under several configurations in one set of gloo ranks.

    reference_job_ranks.py RESULT.json CASES [REWRITTEN]

REWRITTEN is a directory whose `fsdp1_arm.py` takes the place of the FSDP2 arm.
Every rank runs this. Rank 0 writes, per case, what it saw of each arm: losses, gradient norms, and how far
the final weights of the two arms lie apart.
"""

from __future__ import annotations

import importlib
import json
import logging
import re
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.tensor import DTensor

from fsdp_migrate.verify.reference_job import train
from fsdp_migrate.verify.reference_job.config import Arm, ReferenceConfig


class Watch(logging.Handler):
    """Catches the job's log lines, and the outermost module that is called."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers: dict[str, list[float]] = {"loss": [], "gradient norm": []}
        self.root: nn.Module | None = None

    def emit(self, record: logging.LogRecord) -> None:
        match = re.fullmatch(r"step \d+: (loss|gradient norm) (.+)", record.getMessage())
        assert match, record.getMessage()
        self.numbers[match[1]].append(float(match[2]))

    def called(self, module: nn.Module, _args: object) -> None:
        self.root = self.root or module


def observe(arm: Arm, config: ReferenceConfig) -> tuple[Watch, dict[str, Tensor]]:
    watch = Watch()
    log = logging.getLogger(train.__name__)
    log.setLevel(logging.INFO)
    log.addHandler(watch)
    handle = nn.modules.module.register_module_forward_pre_hook(watch.called)
    try:
        train.run(arm, config)
    finally:
        handle.remove()
        log.removeHandler(watch)
    assert watch.root is not None
    return watch, full_weights(watch.root)


def full_weights(root: nn.Module) -> dict[str, Tensor]:
    if isinstance(root, FullyShardedDataParallel):
        with FullyShardedDataParallel.summon_full_params(root, writeback=False):
            return {
                name.replace("_fsdp_wrapped_module.", ""): parameter.detach().clone()
                for name, parameter in root.named_parameters()
            }
    weights = {}
    for name, parameter in root.named_parameters():
        assert isinstance(parameter, DTensor), name
        weights[name] = parameter.full_tensor().detach()
    return weights


def run_cases(cases: dict[str, dict[str, object]]) -> dict[str, object]:
    results: dict[str, object] = {}
    for name, options in cases.items():
        config = ReferenceConfig(**options)  # type: ignore[arg-type]
        (old, old_weights), (new, new_weights) = observe("fsdp1", config), observe("fsdp2", config)
        assert old_weights.keys() == new_weights.keys()
        results[name] = {
            "fsdp1": old.numbers,
            "fsdp2": new.numbers,
            "weights": len(new_weights),
            "weights differ by": max(
                (old_weights[n] - new_weights[n]).abs().max().item() for n in old_weights
            ),
        }
    return results


def main() -> None:
    result, cases = Path(sys.argv[1]), json.loads(sys.argv[2])
    if len(sys.argv) > 3:
        sys.path.insert(0, sys.argv[3])
        train.fsdp2_arm = importlib.import_module("fsdp1_arm")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    found = run_cases(cases)
    if dist.get_rank() == 0:
        result.write_text(json.dumps(found))
    dist.barrier()


if __name__ == "__main__":
    main()
