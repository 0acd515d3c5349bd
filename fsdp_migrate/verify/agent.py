"""Hands a launch to torch's own elastic agent: several machines, or a fresh interpreter for every rank.

On several machines `verify` is started on each, as torchrun is; the machines share the directory of the
records, and each compares for itself. Relies on `python -m torch.distributed.run`.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from fsdp_migrate.errors import JobError, UsageError
from fsdp_migrate.verify.environment import free_port, rank_server_environment
from fsdp_migrate.verify.launcher import LaunchResult, OnStep, RankExit
from fsdp_migrate.verify.spec import RankFiles, WorkerSpec

_STACKS_SECONDS = 1.5
_SETTLE_SECONDS = 20.0
_FAILED = re.compile(r"rank\s*: (\d+) \(local_rank: \d+\)\s+exitcode\s*: (-?\d+)")
_COUNT_GPUS = "import torch; print(torch.cuda.device_count())"


def exit_codes(logs: Iterable[str]) -> dict[int, int]:
    """Exit codes of ranks from the tables that torch's agent prints; without those it ended itself.

    Relies on `torch/distributed/elastic/multiprocessing/errors/__init__.py` (`ChildFailedError`).
    """
    found = {int(rank): int(code) for log in logs for rank, code in _FAILED.findall(log)}
    return {rank: code for rank, code in found.items() if code != -int(signal.SIGTERM)}


def count_gpus(environment: dict[str, str]) -> int:
    """GPUs that torch sees, counted by a process of its own.

    Raises:
        JobError: torch cannot be imported.
    """
    done = subprocess.run(
        [sys.executable, "-c", _COUNT_GPUS],
        env=environment,
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise JobError(f"torch could not be imported: {done.stderr.strip()[-500:]}")
    return int(done.stdout.split()[-1])


class Agent:
    """Launches through `torch.distributed.run`; on leaving it, no rank of this machine is left."""

    def __init__(self, *, nproc: int, nnodes: int, endpoint: str, on_cpu: bool) -> None:
        if nnodes > 1 and ":" not in endpoint:
            raise UsageError("--nnodes needs --rdzv-endpoint HOST:PORT, the same on every machine")
        self.nnodes, self.endpoint, self._on_cpu = nnodes, endpoint, on_cpu
        self._environment = rank_server_environment(nproc)
        self._running: subprocess.Popen[bytes] | None = None
        self._files: list[RankFiles] = []
        self._records, self._launch = Path(), ""
        self.gpus = 0

    def __enter__(self) -> Agent:
        if not self._on_cpu:
            self.gpus = count_gpus(self._environment)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._kill()

    def launch(
        self, spec: WorkerSpec, nproc: int, timeout_s: float, on_step: OnStep | None = None
    ) -> LaunchResult:
        """Run one job to its end; see `RankServer.launch`."""
        launch = spec.arms[0].value
        records = self._records = Path(spec.records)
        self._launch = launch
        spec_path = records / f"{launch}.{socket.gethostname()}.{os.getpid()}.json"
        spec.write(spec_path)
        self._files = [RankFiles.of(records, launch, rank) for rank in range(nproc * self.nnodes)]
        with spec_path.with_suffix(".agent.log").open("wb") as log:
            self._running = subprocess.Popen(
                self._command(nproc, launch, spec_path),
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
                cwd="/",
                start_new_session=True,
            )
        started, hung, step = time.time(), False, 0
        while self._running.poll() is None:
            time.sleep(0.1)
            if on_step is not None and self._files[0].steps > step:
                step = self._files[0].steps
                on_step(step)
            if time.time() - max([started, *self._signs()]) > timeout_s:
                hung = True
                self._signal_ranks(signal.SIGUSR2)
                time.sleep(_STACKS_SECONDS)
                self._kill()
        self._settle()
        codes = exit_codes(self._logs())
        exits = (self._exit(rank, files, codes) for rank, files in enumerate(self._files))
        return LaunchResult(tuple(exits), hung)

    def _command(self, nproc: int, launch: str, spec_path: Path) -> list[str]:
        endpoint = self.endpoint or f"127.0.0.1:{free_port()}"
        return [
            *(sys.executable, "-m", "torch.distributed.run"),
            *(f"--nnodes={self.nnodes}", f"--nproc-per-node={nproc}", "--max-restarts=0"),
            *("--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint}", f"--rdzv-id=fsdp-migrate-{launch}"),
            *("-m", "fsdp_migrate.verify.worker", str(spec_path)),
        ]

    def _signs(self) -> list[float]:
        return [files.alive.stat().st_mtime for files in self._files if files.alive.exists()]

    def _exit(self, rank: int, files: RankFiles, codes: dict[int, int]) -> RankExit:
        code = 0 if files.done.exists() else 1 if files.error.exists() else codes.get(rank)
        return RankExit(rank, code, rank)

    def _logs(self) -> list[str]:
        """What the agents of all machines wrote of this launch."""
        paths = sorted(self._records.glob(f"{self._launch}.*.agent.log"))
        return [path.read_text(encoding="utf-8", errors="replace") for path in paths]

    def _settle(self) -> None:
        """Other machines may still write their last lines when the agent of this one has ended."""
        until = time.monotonic() + (_SETTLE_SECONDS if self.nnodes > 1 else 0.0)
        while time.monotonic() < until:
            codes = exit_codes(self._logs())
            if all(self._exit(rank, each, codes).code is not None for rank, each in enumerate(self._files)):
                return
            time.sleep(0.1)

    def _signal_ranks(self, number: signal.Signals) -> None:
        for files in self._files:
            if not files.alive.exists():
                continue
            host, _, pid = files.alive.read_text(encoding="utf-8").partition(" ")
            if host == socket.gethostname() and pid:
                with suppress(ProcessLookupError):
                    os.kill(int(pid), number)

    def _kill(self) -> None:
        if self._running is None or self._running.poll() is not None:
            return
        self._running.terminate()  # the agent passes it on to its ranks
        try:
            self._running.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._running.kill()
            self._running.wait()
        self._signal_ranks(signal.SIGKILL)
