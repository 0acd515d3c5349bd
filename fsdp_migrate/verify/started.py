"""Starts what the ranks of a verification come from, and leaves nothing behind when it ends."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Literal

from fsdp_migrate.errors import UsageError
from fsdp_migrate.verify import slurm
from fsdp_migrate.verify.agent import Agent
from fsdp_migrate.verify.arms import Progress, Verification
from fsdp_migrate.verify.launcher import RankServer, choose_device
from fsdp_migrate.verify.model import LaunchOptions
from fsdp_migrate.verify.releases import OLDEST, require

CONVERTED = "checkpoint"
"""In a directory that is kept: what the candidate resumes from."""


@contextmanager
def started(options: LaunchOptions, progress: Progress) -> Iterator[Verification]:
    """Start what ranks come from; afterwards no rank and no temporary file is left.

    Raises:
        UsageError: options that cannot be met on this machine, or a torch that is too old.
        JobError: torch cannot be imported.
    """
    require(OLDEST, "verify", "records of older jobs can only be made with a later torch")
    mine = slurm.task(os.environ)
    if mine is not None:
        options = replace(options, nproc=mine.size, nnodes=1)
    if options.nproc < 1 or options.steps < 1:
        raise UsageError("verify needs at least one process and one step")
    if options.nnodes > 1 and options.keep is None:
        raise UsageError(
            "--nnodes needs --keep DIR, a directory that all machines share: the ranks leave their "
            "records there"
        )
    with (
        _orderly_when_terminated(),
        tempfile.TemporaryDirectory(prefix="fsdp-migrate-verify-") as temporary,
        contextlib.ExitStack() as running,
    ):
        records = Path(temporary, "records")
        if options.keep is not None:
            again = f"restart{mine.restarts}" if mine is not None and mine.restarts else ""
            records = _kept(options.keep / again, shared=options.nnodes > 1 or mine is not None)
        records.mkdir(parents=True, exist_ok=True)
        if mine is not None:
            tasks = running.enter_context(slurm.Tasks(mine, options.keep, on_cpu=options.device == "cpu"))
            tasks.require_new(records)
            device = slurm.device_of_tasks(options.device, mine.local_size, tasks.gpus)
            yield Verification(tasks, records, tasks.trees, options, device, progress)
            return
        server, device = _server(options, running)
        yield Verification(server, records, Path(temporary, "trees"), options, device, progress)


@contextmanager
def _orderly_when_terminated() -> Iterator[None]:
    """SIGTERM ends the program as an exception does: ranks are stopped and temporary files removed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _server(
    options: LaunchOptions, running: contextlib.ExitStack
) -> tuple[RankServer | Agent, Literal["cuda", "cpu"]]:
    """What ranks come from: forks on one machine's CPUs, torch's agent everywhere else.

    A forked process cannot use CUDA once its parent has touched it, and what importing torch touches differs
    between versions, so jobs on GPUs get fresh interpreters.
    """
    if options.preload and options.nnodes == 1:
        with contextlib.ExitStack() as forks:
            ranks = forks.enter_context(RankServer(nproc=options.nproc))
            device = choose_device(options.device, options.nproc, ranks.gpus)
            if device == "cpu":
                running.push(forks.pop_all())
                return ranks, device
    agent = Agent(
        nproc=options.nproc,
        nnodes=options.nnodes,
        endpoint=options.rdzv_endpoint,
        on_cpu=options.device == "cpu",
    )
    running.enter_context(agent)
    return agent, choose_device(options.device, options.nproc, agent.gpus)


def require_new_keep(keep: Path, *, but: str = "") -> None:
    """Nothing is written over.

    Args:
        but: the name of an entry that may be there.

    Raises:
        UsageError: the directory exists and is not empty.
    """
    if keep.exists() and (not keep.is_dir() or any(entry.name != but for entry in keep.iterdir())):
        raise UsageError(
            f"--keep {keep}: it exists and is not an empty directory", hint="name a new directory"
        )


def _kept(keep: Path, *, shared: bool) -> Path:
    if not shared or not keep.is_dir():
        require_new_keep(keep, but=CONVERTED)
    try:
        keep.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"--keep {keep}: it cannot be made: {error.strerror}", hint="name a directory that you can write"
        ) from error
    return keep.resolve()
