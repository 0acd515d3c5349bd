"""Starts the ranks of several torchrun jobs, one after the other, from one process that has imported torch.

A job of the demo trains for a second, and importing torch takes each of its ranks several. So the ranks are
forked by `verify`'s rank server, without its probes. They see what torchrun would give them: the same
program, arguments, directory and variables (`torch/distributed/run.py`: RANK, WORLD_SIZE, MASTER_ADDR ...).
"""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from fsdp_migrate.errors import JobError
from fsdp_migrate.verify.environment import free_port, rank_environment
from fsdp_migrate.verify.launcher import RankServer


@dataclass(frozen=True, slots=True)
class RankJob:
    """One torchrun job.

    Attributes:
        script: path of the program, seen from `cwd`.
        log_dir: receives `rank<N>.log`, what each rank printed.
    """

    script: str
    arguments: tuple[str, ...]
    nproc: int
    cwd: Path
    log_dir: Path
    timeout_s: float = 120.0


PRELOAD = ("torch._dynamo", "torch.distributed.fsdp", "torch.distributed.checkpoint.state_dict")
"""What every rank would import; dynamo with the first optimizer, which would take longer than the job."""
_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
_END_S = 10.0
_READY_S = 300.0


class RankForker:
    """The process that ranks are forked from; a context manager, on whose exit no rank is left.

    The process imports while other things are done; the first job waits for it.

    Args:
        preload: modules that are imported before the first fork; none: what `verify` needs.
        nproc: ranks of most jobs.
        environment: variables of the process and its ranks. As it is, they see no GPU: there may be fewer
            GPUs than ranks, and CPU sums are the same on every machine.

    Attributes:
        server: the process.
    """

    def __init__(
        self,
        preload: tuple[str, ...] = PRELOAD,
        *,
        nproc: int = 2,
        environment: Mapping[str, str] = _ENVIRONMENT,
    ) -> None:
        self.server = RankServer(nproc=nproc, modules=preload, environment=environment)
        self._ready = False

    def __enter__(self) -> RankForker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.server.close()

    def run(self, job: RankJob) -> None:
        """Run one job to its end.

        Raises:
            JobError: a rank failed, or the job took longer than its time; quotes the first rank that failed.
        """
        job.log_dir.mkdir(parents=True, exist_ok=True)
        if not self._ready and next(self.server.events(_READY_S), None) is None:
            raise _died(job)
        self._ready = True
        self._launch(job)
        failed, late = self._watch(job)
        if failed is not None:
            log = job.log_dir / f"rank{failed}.log"
            last = [line for line in log.read_text(errors="replace").splitlines() if line.strip()][-1:]
            how = f"did not end within {job.timeout_s:.0f} s" if late else "failed"
            raise JobError(
                f"rank {failed} of {job.nproc} ({job.script}) {how}: {''.join(last) or 'no output'}",
                hint=f"its output is in {log}",
            )

    def _launch(self, job: RankJob) -> None:
        port = free_port()
        program = {"script": job.script, "arguments": list(job.arguments), "cwd": str(job.cwd)}
        ranks = []
        for rank in range(job.nproc):
            log = job.log_dir / f"rank{rank}.log"
            log.write_bytes(b"")
            environment = rank_environment(rank, job.nproc, port)
            streams = {"stdout": str(log), "stderr": str(log)}
            ranks.append({"rank": rank, "environment": environment, "program": program, **streams})
        try:
            self.server.command(do="launch", ranks=ranks)
        except JobError:
            raise _died(job) from None

    def _watch(self, job: RankJob) -> tuple[int | None, bool]:
        """The first rank to fail (the others are then stopped), and whether it was late."""
        until = time.monotonic() + job.timeout_s
        running, failed, late = set(range(job.nproc)), None, False
        while running:
            for event in self.server.events(0.02):
                rank, code = int(str(event["rank"])), int(str(event["code"]))
                running.discard(rank)
                failed = rank if code and failed is None else failed
            if failed is None and running and time.monotonic() > until:
                failed, late = min(running), True
            if failed is not None and running:
                self.server.command(do="signal", signal=int(signal.SIGKILL))
                until_gone = time.monotonic() + _END_S
                while running and time.monotonic() < until_gone:
                    running -= {int(str(event["rank"])) for event in self.server.events(0.1)}
                break
            if running and not self.server.alive:
                raise _died(job)
        return failed, late


def _died(job: RankJob) -> JobError:
    return JobError("the process that starts the ranks has died", hint=f"the logs are in {job.log_dir}")
