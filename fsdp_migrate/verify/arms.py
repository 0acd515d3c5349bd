"""Runs arms: one verification's ranks, records and copies of the project, from its start to its end."""

from __future__ import annotations

import contextlib
import json
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from fsdp_migrate.errors import UsageError
from fsdp_migrate.verify import failures
from fsdp_migrate.verify.agent import Agent
from fsdp_migrate.verify.baseline import Source, build_tree
from fsdp_migrate.verify.launcher import RankServer, choose_device
from fsdp_migrate.verify.model import ArmName, LaunchOptions, VerifyRequest
from fsdp_migrate.verify.noise import RoundingSource
from fsdp_migrate.verify.read import read_arm
from fsdp_migrate.verify.record import ArmRecord
from fsdp_migrate.verify.spec import RankFiles, WorkerSpec

if TYPE_CHECKING:
    from fsdp_migrate.verify.reference_job.config import ReferenceConfig

Progress = Callable[[str], None]

WORDS = {
    ArmName.ORIGINAL: "the original",
    ArmName.CANDIDATE: "the candidate",
    ArmName.NOISE: "the original again, its gradients perturbed in the last bit",
}
_PRINTED_LINES = 3
_COMPARED_LINES = 2000


@dataclass(frozen=True, slots=True)
class Verification:
    """One verification under way.

    Args:
        server: what its ranks come from.
        records: where they write what they saw.
        trees: where the copies of the project are that they run in.
    """

    server: RankServer | Agent
    records: Path
    trees: Path
    options: LaunchOptions
    device: Literal["cuda", "cpu"]
    progress: Progress

    @property
    def ranks(self) -> int:
        """Processes on all machines."""
        return self.options.nproc * self.options.nnodes

    @property
    def fixed_order(self) -> bool:
        """Two terms have one sum whatever their order; it takes three for the order to matter."""
        return self.options.fixed_order and self.ranks > 2

    def script(
        self, request: VerifyRequest, source: Source, arm: ArmName, *, rounding: RoundingSource | None = None
    ) -> tuple[ArmRecord, list[str]]:
        """Run one arm of a script in a fresh copy of its project.

        Args:
            rounding: change gradients (and weights) by as much, to see how far rounding grows.

        Returns:
            Its record, and the large files that were linked into the copy instead of copied.
        """
        tree = self.trees / arm.value
        linked = build_tree(source, tree)
        inside = tree / source.cwd if source.cwd is not None else request.cwd.resolve()
        spec = WorkerSpec(
            program="module" if request.as_module else "script",
            target=source.script if request.as_module else str(tree / source.script),
            arguments=request.arguments,
            cwd=str(inside),
            records=str(self.records),
            arms=(arm,),
            steps=self.options.steps,
            device=self.device,
            fixed_order=self.fixed_order,
            full_limit_bytes=self.options.full_limit_bytes,
            perturb=rounding.size if rounding else 0.0,
            perturb_weights=rounding.weights if rounding else 0.0,
            tree=(str(tree), str(source.root)),
        )
        self._launch(spec)
        record = self._read(arm)
        _refuse_strayed(record, source)
        return record, linked

    def reference(
        self, config: ReferenceConfig, arms: tuple[ArmName, ...], *, rounding: RoundingSource | None = None
    ) -> dict[ArmName, ArmRecord]:
        """Run arms of the bundled job, all in one launch."""
        spec = WorkerSpec(
            program="reference",
            target=json.dumps(asdict(config)),
            arguments=(),
            cwd="/",
            records=str(self.records),
            arms=arms,
            steps=config.steps,
            device=self.device,
            fixed_order=self.fixed_order,
            full_limit_bytes=self.options.full_limit_bytes,
            perturb=rounding.size if rounding else 0.0,
            perturb_weights=rounding.weights if rounding else 0.0,
        )
        self._launch(spec)
        return {arm: self._read(arm) for arm in arms}

    def _launch(self, spec: WorkerSpec) -> None:
        who = " and ".join(WORDS[arm] for arm in spec.arms)
        self.progress(f"running {who} on {self.ranks} process{'es' * (self.ranks != 1)}")
        result = self.server.launch(spec, self.options.nproc, self.options.timeout_s)
        failures.check(result, self.records, spec.arms[0], who, self.options.timeout_s, spec.tree)

    def _read(self, arm: ArmName) -> ArmRecord:
        record = read_arm(self.records / arm.value)
        if record.last_step:
            record.printed = _printed(RankFiles.of(self.records, arm.value, 0))
            return record
        log = RankFiles.of(self.records, arm.value, 0).stdout
        said = log.read_text(encoding="utf-8", errors="replace").strip().splitlines() if log.exists() else []
        printed = f" (it printed: {' / '.join(said[-_PRINTED_LINES:])})" if said else ""
        raise UsageError(
            f"{WORDS[arm]} ended without a single optimizer step; there is nothing to compare{printed}",
            hint="give the arguments that make it train, after --",
        )


def _printed(files: RankFiles) -> tuple[str, ...]:
    """What rank 0 printed, as far as it is of use to compare."""
    lines: list[str] = []
    for path in (files.stdout, files.stderr):
        if path.exists():
            with path.open(encoding="utf-8", errors="replace") as stream:
                lines += [line.rstrip("\n") for line in islice(stream, _COMPARED_LINES)]
    return tuple(lines)


def _refuse_strayed(record: ArmRecord, source: Source) -> None:
    """A module of the working tree in the original arm would make the original half a candidate."""
    wrong = sorted(path for path in record.strayed if path in source.overlay)
    if wrong:
        raise UsageError(
            f"the original imported {', '.join(wrong[:3])} from the working tree instead of the recorded one",
            hint="the project is installed in editable mode by an import hook; "
            "run verify in an environment without it",
        )


@contextmanager
def started(options: LaunchOptions, progress: Progress) -> Iterator[Verification]:
    """Start what ranks come from; afterwards no rank and no temporary file is left.

    Raises:
        UsageError: options that cannot be met on this machine.
        JobError: torch cannot be imported.
    """
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
            records = _kept(options.keep, shared=options.nnodes > 1)
        records.mkdir(parents=True, exist_ok=True)
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
    agent = Agent(nproc=options.nproc, nnodes=options.nnodes, endpoint=options.rdzv_endpoint)
    running.enter_context(agent)
    return agent, choose_device(options.device, options.nproc, agent.gpus)


def _kept(keep: Path, *, shared: bool) -> Path:
    if keep.exists() and (not keep.is_dir() or (any(keep.iterdir()) and not shared)):
        raise UsageError(
            f"--keep {keep}: it exists and is not an empty directory", hint="name a new directory"
        )
    try:
        keep.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"--keep {keep}: it cannot be made: {error.strerror}", hint="name a directory that you can write"
        ) from error
    return keep.resolve()
