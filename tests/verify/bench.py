"""Runs arms of the small project in `projects/tiny` for the tests, each original once.

All ranks of all benches are forked from one process: importing torch costs more than most launches.
"""

from __future__ import annotations

import atexit
from dataclasses import replace
from pathlib import Path
from typing import Any

from resume_file import full_checkpoint

from fsdp_migrate.verify.arms import Verification
from fsdp_migrate.verify.baseline import sources
from fsdp_migrate.verify.launcher import RankServer
from fsdp_migrate.verify.model import ArmName, LaunchOptions, ParityReport, VerifyRequest
from fsdp_migrate.verify.noise import RoundingSource
from fsdp_migrate.verify.record import ArmRecord
from fsdp_migrate.verify.resumed import Resumed
from fsdp_migrate.verify.run import report, script_report

PROJECT = Path(__file__).parent / "projects" / "tiny"
ZOO = Path(__file__).parent / "projects" / "zoo"


class Bench:
    """Arms of one project on so many ranks; originals and noise runs are kept by their options."""

    def __init__(self, run: Verification, folder: Path, project: Path = PROJECT) -> None:
        self.run, self.folder, self.project = run, folder, project
        self.launches = 0
        self.kept: dict[tuple[object, ...], ArmRecord] = {}

    def verdict(
        self,
        *options: str,
        mistake: str = "",
        timeout_s: float = 0.0,
        checkpoint: Resumed | None = None,
        exact: bool = False,
    ) -> ParityReport:
        """Compare `train_fsdp1.py` with `train_fsdp2.py` under these options, the latter with a mistake."""
        request = VerifyRequest(
            "train_fsdp2.py",
            options,
            baseline="train_fsdp1.py",
            cwd=self.project,
            checkpoint=checkpoint,
        )
        before, after = sources(request)
        self.run = replace(self.run, options=replace(self.run.options, exact=exact))
        original = self._arm(request, before, ArmName.ORIGINAL, None)
        wrong = replace(request, arguments=(*options, "--mistake", mistake)) if mistake else request
        candidate, _ = self.fresh(timeout_s).script(wrong, after, ArmName.CANDIDATE)

        def noise(rounding: RoundingSource) -> ArmRecord:
            return self._arm(request, before, ArmName.NOISE, rounding)

        return report(
            self.run.circumstances,
            original,
            candidate,
            noise,
            subject="train_fsdp2.py",
            baseline="train_fsdp1.py",
        )

    def script(self, request: VerifyRequest) -> ParityReport:
        """What `verify_script` does, with the ranks of this bench."""
        return script_report(self.fresh(), request)

    def _arm(
        self, request: VerifyRequest, source: object, arm: ArmName, rounding: RoundingSource | None
    ) -> ArmRecord:
        resumes = request.checkpoint and request.checkpoint.old
        key = (request.arguments, resumes, self.run.options.exact, arm, rounding)
        if key not in self.kept:
            self.kept[key], _ = self.fresh().script(request, source, arm, rounding=rounding)  # type: ignore[arg-type]
        return self.kept[key]

    def fresh(self, timeout_s: float = 0.0) -> Verification:
        """A place for one more launch, with another time-out if one is given."""
        self.launches += 1
        folder = self.folder / str(self.launches)
        (folder / "records").mkdir(parents=True)
        options = replace(self.run.options, timeout_s=timeout_s or self.run.options.timeout_s)
        return replace(self.run, records=folder / "records", trees=folder / "trees", options=options)


_servers: list[RankServer] = []


def _server() -> RankServer:
    """The process that ranks are forked from, a new one where a test has ended it."""
    if not _servers or not _servers[-1].alive:
        _servers.append(RankServer(nproc=2).__enter__())
        atexit.register(_servers[-1].close)
    return _servers[-1]


def bench(folder: Path, nproc: int, steps: int = 3, project: Path = PROJECT, **more: Any) -> Bench:
    """A bench with `nproc` ranks."""
    options = LaunchOptions(**{"nproc": nproc, "steps": steps, "device": "cpu", "timeout_s": 60.0} | more)
    run = Verification(_server(), folder / "records", folder / "trees", options, "cpu", lambda _line: None)
    return Bench(run, folder, project)


class Benches:
    """Benches of the zoo by number of ranks, and the checkpoint that its jobs resume from."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.benches: dict[int, Bench] = {}
        self.checkpoint = folder / "checkpoint.pt"
        full_checkpoint(self.checkpoint, with_buffers=False)

    def verdict(self, options: str, ranks: int, mistake: str = "", timeout_s: float = 0.0) -> ParityReport:
        """Compare the zoo's programs under these options."""
        words = [word.replace("CHECKPOINT", str(self.checkpoint)) for word in options.split()]
        return self.of(ranks).verdict(*words, mistake=mistake, timeout_s=timeout_s)

    def of(self, ranks: int) -> Bench:
        """The bench with so many ranks."""
        if ranks not in self.benches:
            self.benches[ranks] = bench(self.folder / str(ranks), ranks, project=ZOO)
        return self.benches[ranks]

    def forget(self) -> None:
        """Let go of the originals that were run, so that the next verdict runs them again."""
        for each in self.benches.values():
            each.kept.clear()
