"""Takes part in a job that Slurm's `srun` has started: each task is one rank and starts its own worker.

`srun --ntasks 16 fsdp-migrate verify train.py --keep DIR` starts the same command sixteen times. What
torchrun would tell a rank is read from Slurm's variables; the tasks meet over the shared directory DIR alone.
Each compares for itself, from the same records and with the same result, and the first one speaks.

Relies on Slurm's srun(1), "OUTPUT ENVIRONMENT VARIABLES".
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal

from fsdp_migrate.errors import JobError, UsageError
from fsdp_migrate.verify.agent import count_gpus
from fsdp_migrate.verify.baseline import Source
from fsdp_migrate.verify.environment import rank_server_environment
from fsdp_migrate.verify.launcher import LaunchResult, OnStep, RankExit, choose_device
from fsdp_migrate.verify.model import Device
from fsdp_migrate.verify.shadow import build
from fsdp_migrate.verify.spec import RankFiles, WorkerSpec

_ECHO_SECONDS = 3.0
_STACKS_SECONDS = 1.5
_SETTLE_SECONDS = 30.0
_TREE_SECONDS = 300.0
_FIRST_PORT, _PORTS = 20_000, 12_000


@dataclass(frozen=True, slots=True)
class Task:
    """One task of a job step, in torchrun's words.

    Args:
        name: of the job step, the same for all its tasks, and another one when the job is queued again.
        restarts: how often it was.
        port: the first of the ports that its launches use, one after the other.
    """

    name: str
    rank: int
    size: int
    local_rank: int
    local_size: int
    node: int
    nodes: int
    master: str
    port: int
    restarts: int = 0

    def environment(self, launch: int) -> dict[str, str]:
        """What torchrun would tell this rank.

        Args:
            launch: number of the launch, from 0: each has a port of its own.
        """
        told = {
            "RANK": self.rank,
            "WORLD_SIZE": self.size,
            "LOCAL_RANK": self.local_rank,
            "LOCAL_WORLD_SIZE": self.local_size,
            "GROUP_RANK": self.node,
            "GROUP_WORLD_SIZE": self.nodes,
            "ROLE_RANK": self.rank,
            "ROLE_WORLD_SIZE": self.size,
            "ROLE_NAME": "default",
            "MASTER_ADDR": self.master,
            "MASTER_PORT": self.port + launch,
            "TORCHELASTIC_RESTART_COUNT": 0,
            "TORCHELASTIC_MAX_RESTARTS": 0,
            "TORCHELASTIC_RUN_ID": self.name,
        }
        return {key: str(value) for key, value in told.items()}


def task(environment: Mapping[str, str]) -> Task | None:
    """The task that this process is; `None` outside of a job step, and in one of a single task.

    A shell of `salloc` or `sbatch` has no SLURM_STEP_ID; torchrun below srun has set RANK already.
    """
    wanted = ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_STEP_ID")
    if "RANK" in environment or any(name not in environment for name in wanted):
        return None
    rank, size, local_rank = (int(environment[name]) for name in wanted[:3])
    if size < 2:
        return None
    node = int(environment.get("SLURM_NODEID", "0"))
    per_node = tasks_per_node(
        environment.get("SLURM_STEP_TASKS_PER_NODE", environment.get("SLURM_TASKS_PER_NODE", str(size)))
    )
    hosts = environment.get("SLURM_STEP_NODELIST", environment.get("SLURM_NODELIST", "127.0.0.1"))
    job, step = environment.get("SLURM_JOB_ID", "0"), environment["SLURM_STEP_ID"]
    number = int(re.sub(r"\D", "", job) or 0) * 31 + int(re.sub(r"\D", "", step) or 0)
    restarts = int(environment.get("SLURM_RESTART_COUNT") or 0)
    return Task(
        f"{job}.{step}" + f".restart{restarts}" * (restarts > 0),
        rank,
        size,
        local_rank,
        per_node[node] if node < len(per_node) else size,
        node,
        len(per_node),
        environment.get("MASTER_ADDR", first_host(hosts)),
        int(environment.get("MASTER_PORT", _FIRST_PORT + number % _PORTS)),
        restarts,
    )


def first_host(hosts: str) -> str:
    """The first host of a list such as `gpu[003-005,9],login1`."""
    found = re.match(r"([^,\[]*)(?:\[([^\]]*)\])?([^,\[]*)", hosts)
    assert found is not None
    number = re.split(r"[,-]", found[2])[0] if found[2] else ""
    return f"{found[1]}{number}{found[3]}"


def tasks_per_node(words: str) -> list[int]:
    """Tasks of each node, from words such as `4(x2),3`."""
    found: list[int] = []
    for count, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", words):
        found += [int(count)] * int(times or 1)
    return found


def device_of_tasks(wanted: Device, tasks: int, gpus: int) -> Literal["cuda", "cpu"]:
    """`choose_device` for the tasks of one node.

    Args:
        gpus: that this task sees.

    Raises:
        UsageError: fewer GPUs than tasks, or none where one was asked for.
    """
    if wanted != "cpu" and 0 < gpus < tasks:
        raise UsageError(
            f"each task sees {gpus} GPU{'s' * (gpus != 1)}, and {tasks} tasks run on this node: ranks choose "
            "theirs by LOCAL_RANK, as under torchrun, and must see them all",
            hint=f"srun --gpus-per-node {tasks} without --gpus-per-task, or with --gpu-bind none; "
            "or rehearse with --device cpu",
        )
    return choose_device(wanted, tasks, gpus)


class Tasks:
    """Starts this task's rank of every launch and waits for the others; a context manager."""

    def __init__(self, mine: Task, keep: Path | None, *, on_cpu: bool) -> None:
        if keep is None:
            raise UsageError(
                "under srun verify needs --keep DIR, a directory that all nodes share: the ranks leave their "
                "records there",
                hint=f"for each run a new one, for example --keep verify-{mine.name}",
            )
        self.mine, self.gpus, self.launches = mine, 0, 0
        self._on_cpu = on_cpu
        self._keep, self._refused = keep, keep / f"{mine.name}.refused"
        self._no_tree = keep / f"{mine.name}.node{mine.node}.failed"
        self.trees = Path(tempfile.gettempdir(), f"fsdp-migrate-{os.getuid()}-{mine.name}-{mine.node}")
        self._environment = rank_server_environment(mine.local_size)
        self._running: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Tasks:
        if not self._on_cpu:
            self.gpus = count_gpus(self._environment)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._kill()
        if self.mine.local_rank == 0:
            if error is not None:  # others may still wait for a copy
                with suppress(OSError):
                    self._no_tree.parent.mkdir(parents=True, exist_ok=True)
                    self._no_tree.touch()
            shutil.rmtree(self.trees, ignore_errors=True)

    def require_new(self, records: Path) -> None:
        """Each task looks for what it would write itself: that of others may be of this run.

        An earlier run of fewer tasks is seen by the first ones alone, which leave word for the others.

        Raises:
            UsageError: an earlier run left its records there.
        """
        if any(records.glob(f"*.ranks/rank{self.mine.rank}")):
            self._refused.touch()
        self._heed_refusal()

    def _heed_refusal(self) -> None:
        if self._refused.exists():
            raise UsageError(
                f"--keep {self._keep}: an earlier run left its records there",
                hint=f"for each run a new one, for example --keep verify-{self.mine.name}",
            )

    def build(self, source: Source, shadow: Path, cwd: Path) -> list[str]:
        """One copy of the project for all tasks of a node, made by its first.

        Raises:
            JobError: that task did not make it.
        """
        ready = shadow.with_name(f"{shadow.name}.ready")
        if self.mine.local_rank == 0:
            linked = build(source, shadow, cwd)
            ready.write_text("\n".join(linked), encoding="utf-8")
            return linked
        until = time.monotonic() + _TREE_SECONDS
        while not ready.exists():
            self._heed_refusal()
            if time.monotonic() > until or self._no_tree.exists():
                raise JobError(f"the first task of {socket.gethostname()} made no copy of the project")
            time.sleep(0.05)
        return ready.read_text(encoding="utf-8").splitlines()

    def launch(
        self, spec: WorkerSpec, nproc: int, timeout_s: float, on_step: OnStep | None = None
    ) -> LaunchResult:
        """Run this task's rank to its end, and wait until all ranks have come to theirs."""
        records, name = Path(spec.records), spec.arms[0].value
        everyone = [RankFiles.of(records, name, rank) for rank in range(self.mine.size)]
        files = everyone[self.mine.rank]
        files.folder.mkdir(parents=True, exist_ok=True)
        files.alive.touch()
        spec_path = files.folder / "spec.json"
        spec.write(spec_path)
        self._running = subprocess.Popen(
            [sys.executable, "-m", "fsdp_migrate.verify.worker", str(spec_path)],
            env={**self._environment, **self.mine.environment(self.launches)},
            cwd="/",
            start_new_session=True,
        )
        self.launches += 1
        hung = self._watch(everyone, timeout_s, on_step)
        code = self._running.poll()
        written = files.exit.with_name("exit.new")  # others read it as soon as it is there
        written.write_text("stopped" if code is None else str(code), encoding="utf-8")
        written.replace(files.exit)
        self._kill()
        self._settle(everyone)
        exits = (RankExit(rank, _code(each), rank) for rank, each in enumerate(everyone))
        return LaunchResult(tuple(exits), hung or any(each.hung.exists() for each in everyone))

    def _watch(self, everyone: list[RankFiles], timeout_s: float, on_step: OnStep | None) -> bool:
        """Until the rank has ended, or must not go on; whether the job hangs."""
        assert self._running is not None
        mine, failed_at, started, step = everyone[self.mine.rank], 0.0, time.time(), 0
        while self._running.poll() is None:
            time.sleep(0.05)
            self._heed_refusal()
            if on_step is not None and everyone[0].steps > step:
                step = everyone[0].steps
                on_step(step)
            signs = [each.alive.stat().st_mtime for each in everyone if each.alive.exists()]
            silent_s = time.time() - max([started, *signs])
            if silent_s > timeout_s or any(each.hung.exists() for each in everyone):
                mine.hung.touch()
                with suppress(ProcessLookupError):
                    os.kill(self._running.pid, signal.SIGUSR2)
                time.sleep(_STACKS_SECONDS)
                return True
            if any(_code(each) not in (None, 0) and not each.done.exists() for each in everyone):
                failed_at = failed_at or time.monotonic()
                if time.monotonic() - failed_at > _ECHO_SECONDS:
                    return False
        return False

    def _settle(self, everyone: list[RankFiles]) -> None:
        """Other tasks may still be at their last lines."""
        until = time.monotonic() + _SETTLE_SECONDS
        while time.monotonic() < until and not all(each.exit.exists() for each in everyone):
            time.sleep(0.05)

    def _kill(self) -> None:
        if self._running is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._running.pid, signal.SIGKILL)
        self._running.wait()


def _code(files: RankFiles) -> int | None:
    """How a rank ended, as its task wrote it down; `None` where it has not, or was stopped."""
    text = files.exit.read_text(encoding="utf-8") if files.exit.exists() else ""
    return int(text) if text.lstrip("-").isdigit() else None
