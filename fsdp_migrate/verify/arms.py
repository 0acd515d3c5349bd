"""Runs arms: one verification's ranks, records and copies of the project, from its start to its end."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fsdp_migrate.errors import JobError, UsageError
from fsdp_migrate.verify import failures
from fsdp_migrate.verify.agent import Agent
from fsdp_migrate.verify.baseline import Source
from fsdp_migrate.verify.failures import asked_for_gpu
from fsdp_migrate.verify.launcher import RankServer
from fsdp_migrate.verify.model import ArmName, LaunchOptions, VerifyRequest
from fsdp_migrate.verify.noise import RoundingSource
from fsdp_migrate.verify.read import read_arm
from fsdp_migrate.verify.record import ArmRecord
from fsdp_migrate.verify.shadow import build, place
from fsdp_migrate.verify.slurm import Tasks
from fsdp_migrate.verify.spec import RankFiles, WorkerSpec
from fsdp_migrate.verify.written import written

if TYPE_CHECKING:
    from fsdp_migrate.verify.reference_job.config import ReferenceConfig

Progress = Callable[[str], None]

WORDS = {
    ArmName.ORIGINAL: "the original",
    ArmName.CANDIDATE: "the candidate",
    ArmName.UNSHARDED: "the original again, unsharded and in fp32",
    ArmName.DDP: "the original again, under DDP",
    ArmName.DEEPSPEED: "the original again, under DeepSpeed",
    ArmName.NOISE: "one arm again, perturbed in the last bit",
}
ALSO = (ArmName.DDP, ArmName.DEEPSPEED)
"""What FSDP1 can be run as for its speed."""
_PRINTED_LINES = 3
_TIMED_STEPS = 10
_SILENT_S = 3.0
"""How long nothing need be said of a job's progress."""
_COMPARED_LINES = 2000


@dataclass(frozen=True, slots=True)
class Circumstances:
    """Under what two arms ran, as far as the comparison and the report need it.

    Args:
        fixed_order: gradients were summed in rank order in both arms.
        measure_noise: the original may be run once more to measure rounding noise.
        kept: where the records stay; `None` where they do not.
        exact: no difference is allowed.
    """

    ranks: int
    device: str
    fixed_order: bool
    measure_noise: bool
    kept: Path | None
    progress: Progress
    exact: bool = False


@dataclass(frozen=True, slots=True)
class Verification:
    """One verification under way.

    Args:
        server: what its ranks come from.
        records: where they write what they saw.
        trees: where the copies of the project are that they run in.
        alone: whether one program is run by itself, for a record.
    """

    server: RankServer | Agent | Tasks
    records: Path
    trees: Path
    options: LaunchOptions
    device: Literal["cuda", "cpu"]
    progress: Progress
    alone: bool = False

    @property
    def ranks(self) -> int:
        """Processes on all machines."""
        return self.options.nproc * self.options.nnodes

    @property
    def speaks(self) -> bool:
        """Whether this process tells what all know."""
        return not isinstance(self.server, Tasks) or self.server.mine.rank == 0

    @property
    def circumstances(self) -> Circumstances:
        """Under what the arms run."""
        kept = self.records if self.options.keep is not None else None
        return Circumstances(
            self.ranks,
            self.device,
            self.fixed_order,
            self.options.measure_noise,
            kept,
            self.progress,
            self.options.exact,
        )

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
        linked = self._build(request, source, arm)
        spec = self._spec(
            request,
            source,
            arm,
            perturb=rounding.size if rounding else 0.0,
            perturb_weights=rounding.weights if rounding else 0.0,
            perturb_sums=rounding.of_sums if rounding else False,
            unsharded=arm is ArmName.UNSHARDED,
        )
        self._launch(spec)
        record = self._read(arm)
        _refuse_strayed(record, source)
        return record, linked

    def _build(self, request: VerifyRequest, source: Source, arm: ArmName) -> list[str]:
        """Copy the project into the arm's shadow; large files that were linked instead."""
        maker = self.server.build if isinstance(self.server, Tasks) else build
        return maker(source, self.trees / arm.value, request.cwd.resolve())

    def timed(self, number: int) -> Verification:
        """Where the `number`th pair of runs for speed goes, and how many steps they make."""
        options = replace(self.options, steps=max(self.options.steps, _TIMED_STEPS))
        name = f"speed{number}"
        (self.records / name).mkdir(exist_ok=True)
        return replace(self, records=self.records / name, trees=self.trees / name, options=options)

    def time_script(self, request: VerifyRequest, source: Source, arm: ArmName) -> None:
        """Run one arm of a script for its speed; `performance.measured` reads what it leaves."""
        self._build(request, source, arm)
        under = arm.value if arm in ALSO else ""
        self._launch(self._spec(request, source, arm, performance=True, under=under))

    def time_reference(self, config: ReferenceConfig, arms: tuple[ArmName, ...]) -> None:
        """Run arms of the bundled job for their speed, in one launch."""
        config = replace(config, steps=self.options.steps)
        together = tuple(arm for arm in arms if arm is not ArmName.DEEPSPEED)
        self._launch(self._reference_spec(config, together, performance=True))
        for arm in arms:
            if arm not in together:  # it changes FSDP1's class in its processes
                self._launch(self._reference_spec(config, (arm,), performance=True, under=arm.value))

    def reference(
        self, config: ReferenceConfig, arms: tuple[ArmName, ...], *, rounding: RoundingSource | None = None
    ) -> dict[ArmName, ArmRecord]:
        """Run arms of the bundled job, all in one launch."""
        spec = self._reference_spec(
            config,
            arms,
            perturb=rounding.size if rounding else 0.0,
            perturb_weights=rounding.weights if rounding else 0.0,
            perturb_sums=rounding.of_sums if rounding else False,
            unsharded=ArmName.UNSHARDED in arms,
        )
        self._launch(spec)
        return {arm: self._read(arm) for arm in arms}

    def _spec(
        self,
        request: VerifyRequest,
        source: Source,
        arm: ArmName,
        **more: Any,
    ) -> WorkerSpec:
        shadow = self.trees / arm.value
        tree = place(shadow, source.root)
        inside = tree / source.cwd if source.cwd is not None else place(shadow, request.cwd.resolve())
        return WorkerSpec(
            program="module" if request.as_module else "script",
            target=source.script if request.as_module else str(tree / source.script),
            arguments=source.given(request.arguments),
            checkpoint=source.checkpoint,
            cwd=str(inside),
            records=str(self.records),
            arms=(arm,),
            steps=self.options.steps,
            device=self.device,
            fixed_order=self.fixed_order and not more.get("performance"),
            full_limit_bytes=self.options.full_limit_bytes,
            every_element=self.options.every_element,
            exact=self.options.exact,
            as_gpu=self.options.as_gpu,
            tree=(str(tree), str(source.root)),
            shadow=str(shadow),
            **more,
        )

    def _reference_spec(self, config: ReferenceConfig, arms: tuple[ArmName, ...], **more: Any) -> WorkerSpec:
        return WorkerSpec(
            program="reference",
            target=json.dumps(asdict(config)),
            arguments=(),
            cwd="/",
            records=str(self.records),
            arms=arms,
            steps=config.steps,
            device=self.device,
            fixed_order=self.fixed_order and not more.get("performance"),
            full_limit_bytes=self.options.full_limit_bytes,
            every_element=self.options.every_element,
            exact=self.options.exact,
            **more,
        )

    def _launch(self, spec: WorkerSpec) -> None:
        who = "the job" if self.alone else " and ".join(WORDS[arm] for arm in spec.arms)
        self.progress(f"running {who} on {self.ranks} process{'es' * (self.ranks != 1)}")
        said = [time.monotonic()]

        def on_step(step: int) -> None:
            if time.monotonic() - said[0] > _SILENT_S:
                said[0] = time.monotonic()
                self.progress(f"  step {step} of at most {spec.steps}")

        result = self.server.launch(spec, self.options.nproc, self.options.timeout_s, on_step)
        try:
            failures.check(result, self.records, spec.arms[0], who, self.options.timeout_s, spec.shadow)
        except JobError as error:
            if self.speaks:
                raise
            raise JobError(f"{who} failed; the first task says why") from error

    def left_by(self, arm: ArmName) -> ArmRecord:
        """The record of an arm as far as it got."""
        record = read_arm(self.records / arm.value)
        record.printed = _printed(RankFiles.of(self.records, arm.value, 0), str(self.trees / arm.value))
        started = self.records / f"{arm.value}.json"
        if started.exists():
            record.written = written(self.trees / arm.value, started.stat().st_mtime)
        return record

    def _read(self, arm: ArmName) -> ArmRecord:
        record = self.left_by(arm)
        if record.last_step:
            return record
        log = RankFiles.of(self.records, arm.value, 0).stdout
        said = log.read_text(encoding="utf-8", errors="replace").strip().splitlines() if log.exists() else []
        printed = f" (it printed: {' / '.join(said[-_PRINTED_LINES:])})" if said else ""
        if record.resumes and not record.resumed:
            printed = f", and it never opened the checkpoint that it was to resume from{printed}"
        raise UsageError(
            f"{WORDS[arm]} ended without a single optimizer step; there is nothing to compare{printed}",
            hint="give the arguments that make it train, after --" + asked_for_gpu(record.substitutions),
        )


def _printed(files: RankFiles, shadow: str) -> tuple[str, ...]:
    """What rank 0 printed, as far as it is of use to compare, with the paths that the user knows."""
    lines: list[str] = []
    for path in (files.stdout, files.stderr):
        if path.exists():
            with path.open(encoding="utf-8", errors="replace") as stream:
                lines += [line.rstrip("\n").replace(shadow, "") for line in islice(stream, _COMPARED_LINES)]
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
