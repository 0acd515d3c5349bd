"""The demo's road: one FSDP1 project goes from its first training step to proven FSDP2 training.

Every stage is what a user would type. The project's own jobs run as torchrun would run them (`ranks`);
our commands run as processes of their own.
"""

from __future__ import annotations

import json
import shlex
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from fsdp_migrate.demo.commands import CommandResult, run_command, typed
from fsdp_migrate.demo.losses import LossCurve, compare
from fsdp_migrate.demo.ranks import RankForker, RankJob
from fsdp_migrate.demo.stages import NeedsYouError, Outcome, RoadReport, Stage, Watcher
from fsdp_migrate.errors import JobError
from fsdp_migrate.exit_codes import ExitCode

PROJECT = Path(__file__).parent / "project"
SAVED_AT = 10
STEPS = 20
NPROC_CHOICES = {2: 3, 3: 4, 4: 3}
"""Ranks that can share the demo's batch evenly, each with another such number to resume on."""

_ROUNDING_LIMIT = 1e-5


@dataclass(frozen=True, slots=True)
class Run:
    """One FSDP1 training run that writes checkpoints at step `SAVED_AT`.

    Attributes:
        name: its folder, and how its checkpoints are called.
        flags: what its command line adds.
    """

    name: str
    flags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One checkpoint of a run, to be converted.

    Attributes:
        path: file or directory, relative to the run's checkpoints.
        options: what `convert-ckpt` needs beside source and destination.
    """

    title: str
    name: str
    run: Run
    path: str
    options: tuple[str, ...] = ()


ORIGINAL_PARAMETERS = Run("orig-params", ("--use-orig-params",))
FLAT_PARAMETERS = Run("flat-params", ("--no-use-orig-params",))
CHECKPOINTS = (
    Checkpoint("full file", "full", ORIGINAL_PARAMETERS, f"full-{SAVED_AT:06d}.pt"),
    Checkpoint("full file of flat parameters", "full-flat", FLAT_PARAMETERS, f"full-{SAVED_AT:06d}.pt"),
    Checkpoint(
        "per-rank files and raw optimizer",
        "local",
        ORIGINAL_PARAMETERS,
        f"local-{SAVED_AT:06d}",
        ("--model", "train:build_model"),
    ),
    Checkpoint(
        "per-rank files and raw optimizer of flat parameters",
        "local-flat",
        FLAT_PARAMETERS,
        f"local-{SAVED_AT:06d}",
        ("--model", "train:build_model"),
    ),
)


@dataclass(slots=True)
class Road:
    """Walks the road once.

    Args:
        directory: empty; receives the project, the runs and the converted checkpoints.
        nproc: ranks, a key of `NPROC_CHOICES`.
        source: the FSDP1 project that is copied.
    """

    directory: Path
    nproc: int
    watcher: Watcher
    source: Path = PROJECT
    _stages: list[Stage] = field(default_factory=list)

    def walk(self) -> RoadReport:
        """Go through all stages; a job that dies ends the road, anything else is reported and passed."""
        start = time.monotonic()
        with RankForker() as ranks:
            for title, command, act in self._plan(ranks):
                if self._pass(title, command, act).outcome is Outcome.FAILED:
                    break
        return RoadReport(tuple(self._stages), time.monotonic() - start)

    @property
    def project(self) -> Path:
        """The copy of the project that is trained, rewritten and trained again."""
        return self.directory / "project"

    def _pass(self, title: str, command: str, act: Callable[[], str]) -> Stage:
        self.watcher.started(title, command)
        start = time.monotonic()
        try:
            outcome, result = Outcome.DONE, act()
        except NeedsYouError as reason:
            outcome, result = Outcome.NEEDS_YOU, str(reason)
        except JobError as error:
            outcome, result = (
                Outcome.FAILED,
                f"{error.message}; {error.hint}" if error.hint else error.message,
            )
        stage = Stage(title, command, outcome, result, time.monotonic() - start)
        self._stages.append(stage)
        self.watcher.finished(stage)
        return stage

    def _plan(self, ranks: RankForker) -> list[tuple[str, str, Callable[[], str]]]:
        """(title, command, act) of every stage, in order."""
        stages = [
            ("Copy the FSDP1 project", f"cp -r {self.source} {self.project} && cd {self.project}", self._copy)
        ]
        for run in (ORIGINAL_PARAMETERS, FLAT_PARAMETERS):
            stages.append(self._train_stage(ranks, run))
        stages.append(("Rewrite the code", typed(("rewrite", ".")), self._rewrite))
        for checkpoint in CHECKPOINTS:
            stages.append(self._convert_stage(checkpoint))
        for checkpoint in CHECKPOINTS:
            stages.append(self._resume_stage(ranks, checkpoint, self.nproc))
        stages.append(self._resume_stage(ranks, CHECKPOINTS[-1], NPROC_CHOICES[self.nproc]))
        stages.append(self._verify_stage())
        return stages

    def _copy(self) -> str:
        shutil.copytree(self.source, self.project, ignore=shutil.ignore_patterns("__pycache__"))
        files = list(self.project.rglob("*.py"))
        lines = sum(len(path.read_text().splitlines()) for path in files)
        return f"{len(files)} modules, {lines} lines"

    def _train_stage(self, ranks: RankForker, run: Run) -> tuple[str, str, Callable[[], str]]:
        out_dir = f"../fsdp1/{run.name}"
        arguments = (*run.flags, "--save-formats", "full,local", "--out-dir", out_dir)

        def act() -> str:
            self._torchrun(ranks, arguments, self.nproc, f"fsdp1-{run.name}")
            losses = LossCurve.read(self.project / out_dir / "log.jsonl").train
            return f"{len(losses)} steps, loss {losses[1]:.4f} to {losses[STEPS]:.4f}"

        title = f"Train under FSDP1 on {self.nproc} processes, {run.name.replace('-', ' ')}"
        return title, _torchrun_typed(self.nproc, arguments), act

    def _convert_stage(self, checkpoint: Checkpoint) -> tuple[str, str, Callable[[], str]]:
        source = f"../fsdp1/{checkpoint.run.name}/checkpoints/{checkpoint.path}"
        destination = f"../converted/{checkpoint.name}"
        arguments = ("convert-ckpt", source, destination, *checkpoint.options)

        def act() -> str:
            done = self._command(arguments, f"convert-{checkpoint.name}")
            if done.code != ExitCode.OK:
                raise NeedsYouError(done.last_line)
            size = sum(path.stat().st_size for path in (self.project / destination).rglob("*"))
            return f"{size / 2**20:.1f} MiB written and read back"

        return f"Convert the {checkpoint.title}", typed(arguments), act

    def _resume_stage(
        self, ranks: RankForker, checkpoint: Checkpoint, nproc: int
    ) -> tuple[str, str, Callable[[], str]]:
        name = f"{checkpoint.name}-on-{nproc}"
        out_dir = f"../fsdp2/{name}"
        arguments = (
            "--resume",
            f"../converted/{checkpoint.name}",
            "--save-interval",
            "0",
            "--out-dir",
            out_dir,
        )

        def act() -> str:
            self._torchrun(ranks, arguments, nproc, f"fsdp2-{name}")
            reference = LossCurve.read(self.directory / "fsdp1" / checkpoint.run.name / "log.jsonl")
            # Two ranks add two numbers, in whatever order; more ranks round differently.
            exact = nproc == self.nproc == 2
            resumed = LossCurve.read(self.project / out_dir / "log.jsonl")
            found = compare(reference.after(SAVED_AT), resumed, 0.0 if exact else _ROUNDING_LIMIT)
            if not found.holds:
                raise NeedsYouError(f"the resumed run is not the uninterrupted one: {found}")
            return str(found)

        title = f"Resume the {checkpoint.title} under FSDP2 on {nproc} processes"
        return title, _torchrun_typed(nproc, arguments), act

    def _rewrite(self) -> str:
        done = self._command(("rewrite", ".", "--format", "json"), "rewrite")
        findings = json.loads(done.stdout)["findings"]
        translated = sum(finding["outcome"] == "done" for finding in findings)
        left = [finding for finding in findings if finding["outcome"] == "todo"]
        places = ", ".join(f"{finding['path']}:{finding['line']}" for finding in left)
        unforeseen = [finding for finding in left if "LOCAL_STATE_DICT" not in finding["message"]]
        if unforeseen:
            raise NeedsYouError(f"left to you: {places}; {unforeseen[0]['message']}")
        return f"{translated} places translated; per-rank files have no FSDP2 form, left to you: {places}"

    def _verify_stage(self) -> tuple[str, str, Callable[[], str]]:
        script = ("train.py", "--", "--save-interval", "0")
        arguments = ("verify", "--nproc", str(self.nproc), *script)

        def act() -> str:
            done = self._command(arguments, "verify")
            if done.code != ExitCode.OK:
                raise NeedsYouError(f"parity fails; the report is in {done.log}")
            return done.stdout.splitlines()[0]

        return "Verify parity from the first step", typed(arguments), act

    def _torchrun(self, ranks: RankForker, arguments: tuple[str, ...], nproc: int, name: str) -> None:
        ranks.run(RankJob("train.py", arguments, nproc, self.project, self.directory / "logs" / name))

    def _command(self, arguments: tuple[str, ...], name: str) -> CommandResult:
        return run_command(arguments, self.project, self.directory / "logs" / f"{name}.log")


def _torchrun_typed(nproc: int, arguments: tuple[str, ...]) -> str:
    return shlex.join(("torchrun", "--nproc-per-node", str(nproc), "train.py", *arguments))
