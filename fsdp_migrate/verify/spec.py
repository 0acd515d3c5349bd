"""What the launcher tells every rank, as one JSON file per launch, and where a rank leaves what."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from fsdp_migrate.verify.calls import FILE
from fsdp_migrate.verify.model import ArmName

TRACE = "trace.json"
"""The profiler's trace of the last steps, where speed is measured."""
TRACED_STEPS = 2
"""How many of them."""
PHASE = "fsdp-migrate: "
"""What the names of phases begin with in that trace."""
EVENTS = "events.jsonl"
"""What one rank saw in one arm, an event a line."""
TENSORS = "tensors.bin"
"""The elements that its events refer to, raw and little-endian."""
ENOUGH = "enough steps"
"""Why an arm ended that was stopped; another one came to its end."""
STEP = "step"
"""How many steps a rank has made, for whoever waits."""
SAFETENSORS = "tensors.safetensors"
"""The same in a record that is kept: a header before the elements."""


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """One launch of one job, the same for all its ranks.

    Args:
        program: a user's script, a user's module, or the bundled reference job.
        target: path of the script, name of the module, or the reference configuration as JSON.
        records: directory with one folder per arm, and in it one per rank.
        arms: arms run by this launch, in order; a script is one arm.
        device: what the job is to run on; on "cpu" names of other devices are replaced.
        perturb_weights: the same for every element of the initial weights.
        perturb_sums: change small elements of gradients by as much as those of usual size.
        perturb: relative size of the change made to every gradient element, to measure rounding noise; 0 is
            none.
        performance: measure speed and memory, and record no tensor.
        under: run FSDP1 as something else: `ArmName.DDP` or `ArmName.DEEPSPEED`, "" as it is.
        unsharded: run FSDP1 as plain data parallelism in fp32.
        tree: the copied project, and the directory it was copied from; entries of `sys.path` inside the
            latter are redirected to the former.
        shadow: directory below which the copy is under its own path; see `verify.shadow`.
        full_limit_bytes: tensors one rank may write in full; beyond it only digests and sketches are kept.
        checkpoint: what the script is to resume from; "" where it is not.
        every_element: up to that limit write large tensors in full too.
        exact: add norms for clipping up in float64.
        as_gpu: tell the script that there is a GPU where there is none.
        wait_for_peers_s: how long a rank that is done stays for the others.
    """

    program: Literal["script", "module", "reference"]
    target: str
    arguments: tuple[str, ...]
    cwd: str
    records: str
    arms: tuple[ArmName, ...]
    steps: int
    device: Literal["cuda", "cpu"]
    fixed_order: bool
    perturb: float = 0.0
    perturb_weights: float = 0.0
    perturb_sums: bool = False
    unsharded: bool = False
    under: str = ""
    performance: bool = False
    tree: tuple[str, str] | None = None
    shadow: str = ""
    full_limit_bytes: int = 1 << 30
    every_element: bool = False
    checkpoint: str = ""
    exact: bool = False
    as_gpu: bool = False
    wait_for_peers_s: float = 20.0

    def write(self, path: Path) -> None:
        """Write the file a rank reads with `read`."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @staticmethod
    def read(path: Path) -> WorkerSpec:
        """Read what `write` wrote."""
        fields = json.loads(path.read_text(encoding="utf-8"))
        fields["arguments"] = tuple(fields["arguments"])
        fields["arms"] = tuple(ArmName(arm) for arm in fields["arms"])
        fields["tree"] = tuple(fields["tree"]) if fields["tree"] else None
        return WorkerSpec(**fields)


@dataclass(frozen=True, slots=True)
class RankFiles:
    """Files of one rank of one launch; the record itself has a folder per arm."""

    folder: Path

    @staticmethod
    def of(records: Path, launch: str, rank: int) -> RankFiles:
        """Files of `rank` in the launch named `launch` (the name of its first arm)."""
        return RankFiles(records / f"{launch}.ranks" / f"rank{rank}")

    @property
    def stdout(self) -> Path:
        """What the job printed."""
        return self.folder / "stdout.log"

    @property
    def stderr(self) -> Path:
        """What the job printed to stderr."""
        return self.folder / "stderr.log"

    @property
    def stacks(self) -> Path:
        """Python stacks of all threads, written when the rank is asked for them or dies of a signal."""
        return self.folder / "stacks.txt"

    @property
    def steps(self) -> int:
        """Optimizer steps made so far."""
        path = self.folder / STEP
        text = path.read_text(encoding="utf-8").strip() if path.exists() else ""
        return int(text) if text.isdigit() else 0

    @property
    def collectives(self) -> Path:
        """Collective calls as they began, a line each; see `verify.calls`."""
        return self.folder / FILE

    @property
    def error(self) -> Path:
        """The exception that ended the rank, as JSON; absent when none did."""
        return self.folder / "error.json"

    @property
    def done(self) -> Path:
        """Exists once the record of this rank is complete."""
        return self.folder / "done"

    @property
    def exit(self) -> Path:
        """The rank's exit code, where ranks are started by tasks that share no more than this directory."""
        return self.folder / "exit"

    @property
    def hung(self) -> Path:
        """Exists where such a task has found that nothing goes on."""
        return self.folder / "hung"

    @property
    def alive(self) -> Path:
        """Touched at every sign of progress."""
        return self.folder / "alive"
