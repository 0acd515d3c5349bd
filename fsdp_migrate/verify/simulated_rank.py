"""Rank 0 of a simulated world: reads its task as JSON from stdin, writes what it measured to stdout."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch

from fsdp_migrate.planner.fake_world import fake_group
from fsdp_migrate.verify import fsdp1_on_cpu
from fsdp_migrate.verify.reference_job import train
from fsdp_migrate.verify.reference_job.config import Arm, ReferenceConfig


def main() -> None:
    """Run the task."""
    task = json.load(sys.stdin)
    on_gpu = task["device"] != "cpu" and torch.cuda.is_available()
    world = int(task["world"])
    os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(world)}
    os.environ["LOCAL_WORLD_SIZE"] = str(min(world, 8))
    if on_gpu:
        torch.cuda.set_device(0)
    else:
        fsdp1_on_cpu.apply(lambda _: None)
    config = ReferenceConfig(**task["config"])
    device = torch.device("cuda", 0) if on_gpu else torch.device("cpu")
    with fake_group(world):
        measured = _measure(task["arm"], config, device)
    name = torch.cuda.get_device_name(0) if on_gpu else "cpu"
    print(json.dumps({"device": name, **measured}), flush=True)
    os._exit(0)


def _measure(arm: Arm, config: ReferenceConfig, device: torch.device) -> dict[str, Any]:
    marks: list[tuple[float, int, int, int]] = []

    def after_step() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize()
            peaks = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
            marks.append((time.perf_counter(), *peaks, torch.cuda.memory_allocated()))
            torch.cuda.reset_peak_memory_stats()
        else:
            peak, now = _resident()
            marks.append((time.perf_counter(), peak, peak, now))

    numel = train.run_on_meta(arm, config, device, after_step)
    steady = marks[1:]
    return {
        "parameters": numel,
        "measured": "GPU memory of the allocator" if device.type == "cuda" else "resident memory, process",
        "arm": {
            "name": arm,
            "peak_allocated": max(mark[1] for mark in steady),
            "peak_reserved": max(mark[2] for mark in steady),
            "steady": steady[-1][3],
            "step_seconds": (marks[-1][0] - marks[0][0]) / (len(marks) - 1),
        },
    }


def _resident() -> tuple[int, int]:
    """Largest and present resident memory of this process, in bytes."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    values = {line.split(":")[0]: line.split()[1] for line in lines if line.startswith(("VmHWM", "VmRSS"))}
    return int(values["VmHWM"]) * 1024, int(values["VmRSS"]) * 1024


if __name__ == "__main__":
    main()
