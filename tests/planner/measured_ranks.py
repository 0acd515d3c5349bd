"""One rank of a gloo job that trains every case on real tensors; argument: where to write what it held."""

from __future__ import annotations

import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils._pytree import tree_leaves

from fsdp_migrate.planner import sharding
from fsdp_migrate.planner.own_model import build
from fsdp_migrate.planner.plan import ARMS, measure
from fsdp_migrate.planner.recorder import Recorder
from tests.planner.cases import HELD, JOBS

seen: dict[str, int] = {}


def held(tensors: list[Any]) -> int:
    """Bytes of storages, counted without the recorder."""
    local = [getattr(one, "_local_tensor", one).untyped_storage() for one in tensors if torch.is_tensor(one)]
    return sum({one.data_ptr(): one.nbytes() for one in local if one.nbytes()}.values())


def after_step(optimizer: torch.optim.Optimizer, *_: object) -> None:
    """What the optimizer itself holds at the end of its step."""
    parameters = [one for group in optimizer.param_groups for one in group["params"]]
    seen["parameters"] = held(parameters)
    seen["gradients"] = held([one.grad for one in parameters])
    seen["optimizer_state"] = held(tree_leaves([optimizer.state[one] for one in parameters]))


def main() -> None:
    """Train."""
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo")
    register_optimizer_step_post_hook(after_step)  # type: ignore[no-untyped-call]
    results = {}
    for case in HELD:
        job = JOBS[case]
        mesh = sharding.mesh_of(job.settings)
        for name in ARMS:
            measure(name, build(job), job, mesh, Recorder(fake=False))
            results[f"{case}: {name}"] = dict(seen)
    where = Path(sys.argv[1]) / f"rank{dist.get_rank()}.json"
    where.write_text(json.dumps(results))
    dist.barrier()
    os._exit(0)


main()
