"""Starts the ranks of several torchrun jobs, one after the other, from one process that has imported torch.

A job of the demo trains for a second, and importing torch takes each of its ranks several. So the ranks are
forked from a process that has imported it. They see what torchrun would give them: the same program,
arguments, directory and variables (`torch/distributed/run.py`: RANK, WORLD_SIZE, MASTER_ADDR and their kin).
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import subprocess
import sys
import time
import traceback
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import NoReturn

from fsdp_migrate.errors import JobError
from fsdp_migrate.verify.launcher import free_port, rank_environment

_PACKAGES = Path(__file__).resolve().parents[2]


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


_LONGEST_END_S = 0.5
"""How long killed ranks may take to be gone; where nobody collects orphans they never are."""


class RankForker:
    """The process that ranks are forked from; a context manager, on whose exit no rank is left.

    The ranks see no GPU: there may be fewer GPUs than ranks, and CPU sums are the same on every machine.

    Args:
        preload: modules that are imported before the first fork.
    """

    def __init__(self, preload: tuple[str, ...] = ("torch.distributed.fsdp",)) -> None:
        program = (
            f"import sys; sys.path.insert(0, {str(_PACKAGES)!r}); "
            "from fsdp_migrate.demo.ranks import serve; serve()"
        )
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore::FutureWarning", "-c", program, *preload],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
            start_new_session=True,
            text=True,
        )

    def __enter__(self) -> RankForker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        until = time.monotonic() + _LONGEST_END_S
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            while time.monotonic() < until:  # the ranks are the server's children: they end by themselves
                os.killpg(self._process.pid, 0)
                time.sleep(0.01)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def run(self, job: RankJob) -> None:
        """Run one job to its end.

        Raises:
            JobError: a rank failed, or the job took longer than its time; quotes the first rank that failed.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        job.log_dir.mkdir(parents=True, exist_ok=True)
        fields = {**asdict(job), "cwd": str(job.cwd), "log_dir": str(job.log_dir)}
        try:
            self._process.stdin.write(json.dumps(fields) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except (BrokenPipeError, ValueError):  # ValueError: our end is closed
            answer = ""
        if not answer:
            raise JobError(
                "the process that starts the ranks has died", hint=f"the logs are in {job.log_dir}"
            )
        outcome = json.loads(answer)
        if outcome["failed"] is not None:
            log = job.log_dir / f"rank{outcome['failed']}.log"
            last = [line for line in log.read_text(errors="replace").splitlines() if line.strip()][-1:]
            how = f"did not end within {job.timeout_s:.0f} s" if outcome["late"] else "failed"
            rank = f"rank {outcome['failed']} of {job.nproc} ({job.script})"
            raise JobError(
                f"{rank} {how}: {''.join(last) or 'no output'}",
                hint=f"its output is in {log}",
            )


def serve() -> NoReturn:
    """Answer jobs, a JSON line each, until stdin ends. An answer names the first rank to fail, or none."""
    import importlib

    answers = os.dup(1)
    os.dup2(2, 1)  # nothing that an import prints may pass for an answer
    for module in sys.argv[1:]:
        importlib.import_module(module)
    for line in sys.stdin:
        failed, late = _run_ranks(json.loads(line))
        os.write(answers, (json.dumps({"failed": failed, "late": late}) + "\n").encode())
    os._exit(0)


def _run_ranks(job: dict[str, object]) -> tuple[int | None, bool]:
    """Fork the ranks and wait: the first to fail (the others are then stopped), and whether it was late."""
    nproc = int(str(job["nproc"]))
    port = free_port()
    ranks = {}
    for rank in range(nproc):
        pid = os.fork()
        if pid == 0:
            _become_rank(job, rank, nproc, port)
        ranks[pid] = rank
    failed, late = None, False
    parent = os.getppid()
    deadline = time.monotonic() + float(str(job["timeout_s"]))
    while ranks:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            time.sleep(0.01)
        elif status != 0 and failed is None:
            failed = ranks[pid]
        ranks.pop(pid, None)
        if failed is None and ranks and time.monotonic() > deadline:
            failed, late = min(ranks.values()), True
        if os.getppid() != parent and ranks:  # nobody is left to answer to
            failed = min(ranks.values())
        if failed is not None:
            for left in ranks:
                with suppress(ProcessLookupError):
                    os.kill(left, signal.SIGKILL)
    return failed, late


def _become_rank(job: dict[str, object], rank: int, nproc: int, port: int) -> NoReturn:
    """Turn the forked child into a rank and run the program in it."""
    code = 1
    try:
        log = os.open(f"{job['log_dir']}/rank{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ.update(rank_environment(rank, nproc, port))
        os.chdir(str(job["cwd"]))
        arguments = job["arguments"]
        assert isinstance(arguments, list)
        script = str(job["script"])
        sys.argv = [script, *arguments]
        sys.path[:] = [str(Path(script).resolve().parent), *(entry for entry in sys.path[1:] if entry)]
        runpy.run_path(script, run_name="__main__")
        code = 0
    except SystemExit as leave:
        code = int(leave.code or 0) if isinstance(leave.code, int | None) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # Not sys.exit: gloo's threads abort an orderly exit now and then (SIGABRT, torch 2.13 on CPU).
        os._exit(code)
