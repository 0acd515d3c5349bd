"""Starts the ranks of a job, watches them, and leaves none behind.

The variables a rank gets are those of torch's elastic launcher (`torch/distributed/run.py`): RANK,
LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT and their kin. `RankServer` forks ranks on
this machine from a process that has imported torch; `verify.agent` hands jobs of several machines to torch's
own agent.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal

from fsdp_migrate.errors import JobError, UsageError
from fsdp_migrate.verify.environment import PACKAGES, free_port, rank_environment, rank_server_environment
from fsdp_migrate.verify.model import Device
from fsdp_migrate.verify.spec import RankFiles, WorkerSpec

_STACKS_SECONDS = 1.5
_ECHO_SECONDS = 3.0
OnStep = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class RankExit:
    """How one rank ended.

    Args:
        code: exit code, `-N` for signal N, `None` for a rank that still ran when it was stopped.
        order: position among the ranks that ended, from 0.
    """

    rank: int
    code: int | None
    order: int


@dataclass(frozen=True, slots=True)
class LaunchResult:
    """How a launch ended: every rank, and whether it was stopped for lack of progress."""

    exits: tuple[RankExit, ...]
    hung: bool


def choose_device(wanted: Device, nproc: int, gpus: int) -> Literal["cuda", "cpu"]:
    """The device a job runs on, "cuda" or "cpu".

    Raises:
        UsageError: more processes than GPUs, or no GPU where one was asked for.
    """
    if wanted == "cpu" or (wanted == "auto" and gpus == 0):
        return "cpu"
    if gpus == 0:
        raise UsageError(
            "--device cuda: torch finds no GPU on this machine", hint="rehearse with --device cpu"
        )
    if nproc > gpus:
        raise UsageError(
            f"--nproc {nproc}: this machine has {gpus} GPU{'s' * (gpus != 1)}, and NCCL takes one process "
            "per GPU",
            hint=f"use --nproc {gpus} or fewer, or rehearse on the CPU with --device cpu",
        )
    return "cuda"


class RankServer:
    """The process ranks are forked from; a context manager, on whose exit no rank is left.

    Attributes:
        gpus: GPUs torch sees; known after `__enter__`.
        torch_version: of the torch that the ranks run.
    """

    def __init__(
        self, *, nproc: int, modules: tuple[str, ...] = (), environment: Mapping[str, str] | None = None
    ) -> None:
        """Start the process.

        Args:
            nproc: ranks of a launch.
            modules: what to import before the first fork, instead of what `verify` needs.
            environment: variables for the process and its ranks.
        """
        program = (
            f"import sys; path = [p for p in sys.path if p]; sys.path = [{str(PACKAGES)!r}, *path]; "
            f"from fsdp_migrate.verify.rank_server import main; main(path, {list(modules)!r})"
        )
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore::FutureWarning", "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**rank_server_environment(nproc), **(environment or {})},
            start_new_session=True,
            cwd="/",
        )
        self._buffer = b""
        self.gpus = 0
        self.torch_version = ""

    def __enter__(self) -> RankServer:
        ready = next(self.events(timeout_s=300.0), None)
        if ready is None:
            self.close()
            raise JobError("torch could not be imported", hint=f"try: {sys.executable} -c 'import torch'")
        self.gpus, self.torch_version = int(str(ready["gpus"])), str(ready["torch"])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def close(self) -> None:
        """End the process, and with it every rank."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def command(self, **command: object) -> None:
        """Tell the process what to do.

        Raises:
            JobError: it has died.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write((json.dumps(command) + "\n").encode())
            self._process.stdin.flush()
        except (
            BrokenPipeError,
            ValueError,
        ):  # not ours to pass on: to the command line it means that its reader has gone
            raise _died() from None

    def events(self, timeout_s: float) -> Iterator[dict[str, object]]:
        """Events that arrive within `timeout_s`; ends early only when the server has gone."""
        assert self._process.stdout is not None
        until = time.monotonic() + timeout_s
        while (left := until - time.monotonic()) > 0:
            if not select.select([self._process.stdout], [], [], left)[0]:
                return
            chunk = os.read(self._process.stdout.fileno(), 1 << 16)
            if not chunk:
                return
            *lines, self._buffer = (self._buffer + chunk).split(b"\n")
            for line in lines:
                yield json.loads(line)

    def launch(
        self, spec: WorkerSpec, nproc: int, timeout_s: float, on_step: OnStep | None = None
    ) -> LaunchResult:
        """Run one job to its end; afterwards no rank of it is left.

        Args:
            timeout_s: seconds without progress on any rank after which the job is stopped.
            on_step: told how many steps rank 0 has made, each time it has made more.

        Raises:
            JobError: the process that starts the ranks has died.
        """
        records = Path(spec.records)
        files = [RankFiles.of(records, spec.arms[0].value, rank) for rank in range(nproc)]
        spec_path = records / f"{spec.arms[0].value}.json"
        spec.write(spec_path)
        port = free_port()
        for each in files:
            each.folder.mkdir(parents=True)
            each.alive.touch()
        ranks = [
            {
                "rank": rank,
                "environment": rank_environment(rank, nproc, port),
                "stdout": str(each.stdout),
                "stderr": str(each.stderr),
                "spec": str(spec_path),
            }
            for rank, each in enumerate(files)
        ]
        self.command(do="launch", ranks=ranks)
        try:
            return _Watch(self, files, timeout_s, on_step).until_all_ended()
        finally:
            self.command(do="signal", signal=int(signal.SIGKILL))


def _died() -> JobError:
    return JobError("the process that starts the ranks has died", hint="is the machine out of memory?")


class _Watch:
    """Follows one launch from its start to the last exit."""

    def __init__(
        self, server: RankServer, files: list[RankFiles], timeout_s: float, on_step: OnStep | None
    ) -> None:
        self.server, self.files, self.timeout_s, self.on_step = server, files, timeout_s, on_step
        self.step = 0
        self.codes: dict[int, int] = {}
        self.stopped: frozenset[int] = frozenset()

    def until_all_ended(self) -> LaunchResult:
        hung = False
        while len(self.codes) < len(self.files):
            self._take(0.2)
            if self.on_step is not None and (step := self.files[0].steps) > self.step:
                self.step = step
                self.on_step(step)
            if self._failed():
                # Give the others time to run into the consequences: their words help to tell cause from echo.
                self._wait(_ECHO_SECONDS)
                self._stop()
            elif time.time() - max(each.alive.stat().st_mtime for each in self.files) > self.timeout_s:
                hung = True
                self.server.command(do="signal", signal=int(signal.SIGUSR2))
                self._wait(_STACKS_SECONDS)
                self._stop()
        order = {rank: position for position, rank in enumerate(self.codes)}
        exits = (
            RankExit(rank, None if rank in self.stopped else code, order[rank])
            for rank, code in self.codes.items()
        )
        return LaunchResult(tuple(sorted(exits, key=lambda one: one.rank)), hung)

    def _take(self, seconds: float) -> None:
        if not self.server.alive:
            raise _died()
        for event in self.server.events(seconds):
            self.codes[int(str(event["rank"]))] = int(str(event["code"]))

    def _failed(self) -> bool:
        return any(code != 0 and not self.files[rank].done.exists() for rank, code in self.codes.items())

    def _wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until and len(self.codes) < len(self.files):
            self._take(0.1)

    def _stop(self) -> None:
        self.stopped = frozenset(range(len(self.files))) - frozenset(self.codes)
        self.server.command(do="signal", signal=int(signal.SIGKILL))
        self._wait(10.0)
        for rank in self.stopped - frozenset(self.codes):
            self.codes[rank] = -int(signal.SIGKILL)
