"""Memory of one rank of a large job on one device: rank 0 with a process group that moves nothing.

The fake group answers every collective at once and leaves what is in its buffers, so that numbers mean
nothing and allocations are those of the real job: shards, gathered units, gradients, optimizer state and
activations. On a GPU the peaks are the allocator's own; on a CPU they are the resident memory of the process,
which says less.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, dataclass, replace

from fsdp_migrate.errors import JobError
from fsdp_migrate.verify.arms import Progress
from fsdp_migrate.verify.environment import rank_server_environment
from fsdp_migrate.verify.model import LaunchOptions
from fsdp_migrate.verify.reference_job.config import ReferenceConfig

_STEPS = 3


@dataclass(frozen=True, slots=True)
class SimulatedArm:
    """Peaks of one arm in bytes, over the steps after the first, and after the last step."""

    name: str
    peak_allocated: int
    peak_reserved: int
    steady: int
    step_seconds: float


@dataclass(frozen=True, slots=True)
class Simulation:
    """Both arms of the reference job at one world size."""

    config: ReferenceConfig
    world: int
    device: str
    parameters: int
    arms: tuple[SimulatedArm, ...]
    measured: str


def simulate(config: ReferenceConfig, world: int, options: LaunchOptions, progress: Progress) -> Simulation:
    """Run rank 0 of `world` ranks, each arm in a process of its own.

    Raises:
        JobError: an arm failed, or took longer than it may; quotes the last lines it printed.
    """
    found = []
    answer: dict[str, object] = {}
    for arm in ("fsdp1", "fsdp2"):
        progress(f"simulating rank 0 of {world} under {arm.upper()}")
        task = {
            "config": asdict(replace(config, steps=_STEPS)),
            "arm": arm,
            "world": world,
            "device": options.device,
        }
        try:
            done = subprocess.run(
                [sys.executable, "-m", "fsdp_migrate.verify.simulated_rank"],
                input=json.dumps(task),
                env=rank_server_environment(1),
                capture_output=True,
                text=True,
                timeout=options.timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise JobError(
                f"the {arm.upper()} arm took longer than {options.timeout_s:g} s",
                hint="raise --timeout, or name a smaller --config",
            ) from None
        if done.returncode:
            raise JobError(
                f"the {arm.upper()} arm failed: {done.stderr.strip()[-1500:]}",
                hint="is the model too large for this device? --config names another size",
            )
        answer = json.loads(done.stdout.splitlines()[-1])
        found.append(SimulatedArm(**answer["arm"]))  # type: ignore[arg-type]
    return Simulation(
        config,
        world,
        str(answer["device"]),
        int(str(answer["parameters"])),
        tuple(found),
        str(answer["measured"]),
    )
