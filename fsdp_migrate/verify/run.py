"""Run both arms and compare them: the two entry points of the verifier."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from fsdp_migrate.errors import UsageError
from fsdp_migrate.verify import failures
from fsdp_migrate.verify.baseline import Source, build_tree, sources
from fsdp_migrate.verify.causes import likely_causes
from fsdp_migrate.verify.compare import Comparison, compare
from fsdp_migrate.verify.evidence import Evidence
from fsdp_migrate.verify.launcher import RankServer, choose_device
from fsdp_migrate.verify.model import ArmName, LaunchOptions, ParityReport, VerifyRequest
from fsdp_migrate.verify.noise import RoundingSource, entry_limit, measured_limits, rounding_source
from fsdp_migrate.verify.read import read_arm
from fsdp_migrate.verify.record import ArmRecord
from fsdp_migrate.verify.spec import RankFiles, WorkerSpec
from fsdp_migrate.verify.verdict import judge, largest, summary

if TYPE_CHECKING:
    from fsdp_migrate.verify.reference_job.config import ReferenceConfig

Progress = Callable[[str], None]
_WORDS = {
    ArmName.ORIGINAL: "the original",
    ArmName.CANDIDATE: "the candidate",
    ArmName.NOISE: "the original again, gradients perturbed in the last bit",
}


_DEFAULTS = LaunchOptions()


def _silent(_line: str) -> None: ...


@dataclass(frozen=True, slots=True)
class _Run:
    """One verification under way: the server its ranks come from and the folder its records go to."""

    server: RankServer
    records: Path
    options: LaunchOptions
    device: Literal["cuda", "cpu"]
    progress: Progress

    @property
    def fixed_order(self) -> bool:
        """Two terms have one sum whatever their order; it takes three for the order to matter."""
        return self.options.fixed_order and self.options.nproc * self.options.nnodes > 2

    def launch(self, spec: WorkerSpec) -> None:
        """Run one launch to its end, or raise with its first cause."""
        who = " and ".join(_WORDS[arm] for arm in spec.arms)
        self.progress(f"running {who} on {self.options.nproc} processes")
        result = self.server.launch(spec, self.options.nproc, self.options.timeout_s, lambda: None)
        failures.check(result, self.records, spec.arms[0], who, self.options.timeout_s)


@contextmanager
def _started(options: LaunchOptions, progress: Progress) -> Iterator[_Run]:
    if options.nproc < 1:
        raise UsageError(f"--nproc {options.nproc}: at least one process is needed")
    if options.steps < 1:
        raise UsageError(f"--steps {options.steps}: at least one step is needed")
    with tempfile.TemporaryDirectory(prefix="fsdp-migrate-verify-") as temporary:
        records = _records_folder(options.keep) if options.keep is not None else Path(temporary)
        with RankServer(nproc=options.nproc) as server:
            device = choose_device(options.device, options.nproc, server.gpus)
            yield _Run(server, records, options, cast("Literal['cuda', 'cpu']", device), progress)


def _records_folder(keep: Path) -> Path:
    if keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise UsageError(
            f"--keep {keep}: it exists and is not an empty directory", hint="name a new directory"
        )
    keep.mkdir(parents=True, exist_ok=True)
    return keep.resolve()


def verify_script(request: VerifyRequest, progress: Progress = _silent) -> ParityReport:
    """Run the original and the candidate of a user's script and compare them.

    Args:
        progress: told one line at a time what goes on.

    Raises:
        UsageError: no baseline, no such script, a job that never steps.
        JobError: an arm died or hung; the message names the first cause.
    """
    original, candidate = sources(request)
    with _started(request.launch, progress) as run:
        linked = {
            arm: build_tree(source, run.records / f"{arm.value}.tree")
            for arm, source in ((ArmName.ORIGINAL, original), (ArmName.CANDIDATE, candidate))
        }
        specs = {
            arm: _script_spec(request, run, arm, source)
            for arm, source in ((ArmName.ORIGINAL, original), (ArmName.CANDIDATE, candidate))
        }
        arms = {}
        for arm, spec in specs.items():
            run.launch(spec)
            arms[arm] = _read(run, arm)
        _refuse_strayed(arms[ArmName.ORIGINAL], original)

        def noise(size: float) -> ArmRecord:
            run.launch(replace(specs[ArmName.ORIGINAL], arms=(ArmName.NOISE,), perturb=size))
            return _read(run, ArmName.NOISE)

        notes = [f"{path} is larger than 64 MiB: linked into both copies, not copied" for path in linked[arm]]
        return _report(run, arms, noise, request.script, original.words, notes)


def verify_reference(
    config: ReferenceConfig, launch: LaunchOptions = _DEFAULTS, progress: Progress = _silent
) -> ParityReport:
    """Run the bundled job under FSDP1 and under FSDP2, in one launch, and compare them.

    Raises:
        JobError: the job died or hung.
    """
    with _started(launch, progress) as run:
        spec = WorkerSpec(
            program="reference",
            target=json.dumps(asdict(config)),
            arguments=(),
            cwd="/",
            records=str(run.records),
            arms=(ArmName.ORIGINAL, ArmName.CANDIDATE),
            steps=config.steps,
            device=run.device,
            fixed_order=run.fixed_order,
        )
        run.launch(spec)
        arms = {arm: _read(run, arm) for arm in spec.arms}

        def noise(size: float) -> ArmRecord:
            run.launch(replace(spec, arms=(ArmName.NOISE,), perturb=size))
            return _read(run, ArmName.NOISE)

        return _report(run, arms, noise, "the bundled reference job", "the same job under FSDP1", [])


def _script_spec(request: VerifyRequest, run: _Run, arm: ArmName, source: Source) -> WorkerSpec:
    tree = run.records / f"{arm.value}.tree"
    return WorkerSpec(
        program="module" if request.as_module else "script",
        target=source.script if request.as_module else str(tree / source.script),
        arguments=request.arguments,
        cwd=str(tree / source.cwd if source.cwd is not None else request.cwd.resolve()),
        records=str(run.records),
        arms=(arm,),
        steps=request.launch.steps,
        device=run.device,
        fixed_order=run.fixed_order,
        tree=(str(tree), str(source.root)),
    )


def _read(run: _Run, arm: ArmName) -> ArmRecord:
    record = read_arm(run.records / arm.value)
    if not record.last_step:
        logs = RankFiles.of(run.records, arm.value, 0).stdout
        said = (
            logs.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-3:]
            if logs.exists()
            else []
        )
        raise UsageError(
            f"{_WORDS[arm]} ended without a single optimizer step; there is nothing to compare"
            + (f" (it printed: {' / '.join(said)})" if said else ""),
            hint="give the arguments that make it train, after --",
        )
    return record


def _refuse_strayed(record: ArmRecord, source: Source) -> None:
    """A module of the working tree in the original arm would make the original half a candidate."""
    wrong = sorted(path for path in record.strayed if path in source.overlay)
    if wrong:
        raise UsageError(
            f"the original imported {', '.join(wrong[:3])} from the working tree instead of the recorded one",
            hint=(
                "the project is installed in editable mode by an import hook; run verify in an "
                "environment without it"
            ),
        )


def _report(
    run: _Run,
    arms: dict[ArmName, ArmRecord],
    noise: Callable[[float], ArmRecord],
    subject: str,
    baseline: str,
    notes: list[str],
) -> ParityReport:
    original, candidate = arms[ArmName.ORIGINAL], arms[ArmName.CANDIDATE]
    run.progress("comparing")
    comparison, origin = _judged(run, original, candidate, noise)
    judged = judge(original, candidate, comparison, origin)
    causes = () if judged.passed else likely_causes(Evidence(original, candidate, comparison))
    fails = next((one for one in comparison.differences if one.fails), None)
    if not comparison.bitwise and judged.passed:
        notes = [*notes, f"not equal to the last bit: {origin}"]
    return ParityReport(
        passed=judged.passed,
        subject=subject,
        baseline=baseline,
        nproc=run.options.nproc * run.options.nnodes,
        device=run.device,
        torch_version=original.torch_version,
        reduction="gradients summed in rank order in both arms"
        if run.fixed_order
        else "as the backend does it",
        steps=min(original.last_step, candidate.last_step),
        original=summary(ArmName.ORIGINAL, original),
        candidate=summary(ArmName.CANDIDATE, candidate),
        checks=judged.checks,
        first=fails,
        largest=largest(comparison),
        causes=causes,
        notices=(*judged.notices, *notes),
        substitutions=tuple(dict.fromkeys([*original.substitutions, *candidate.substitutions])),
        not_observed=tuple(dict.fromkeys([*original.not_observed, *candidate.not_observed])),
        records=run.records if run.options.keep is not None else None,
    )


def _judged(
    run: _Run, original: ArmRecord, candidate: ArmRecord, noise: Callable[[float], ArmRecord]
) -> tuple[Comparison, str]:
    """Compare; where the arms differ by what rounding could be, measure how far rounding grows and "
    "judge by that."""
    comparison = compare(original, candidate)
    first = comparison.first
    if first is None:
        return comparison, ""
    source = rounding_source(original, candidate, fixed_order=run.fixed_order)
    if first.relative > source.entry or not run.options.measure_noise:
        return comparison.judged(
            entry_limit(source)
        ), f"{_size(source)}, and four times as much with every step"
    perturbed = noise(source.size)
    measured = compare(original, perturbed)
    origin = f"16 times what the original differs from itself with its gradients changed by {_size(source)}"
    return comparison.judged(measured_limits(measured, source)), origin


def _size(source: RoundingSource) -> str:
    return f"{source.size:.1e} ({source.reason})"
