"""Run both arms and compare them: the two entry points of the verifier."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from fsdp_migrate.verify.arms import Progress, Verification, started
from fsdp_migrate.verify.baseline import sources
from fsdp_migrate.verify.causes import likely_causes
from fsdp_migrate.verify.compare import Comparison, compare
from fsdp_migrate.verify.evidence import Evidence
from fsdp_migrate.verify.figures import largest, summary
from fsdp_migrate.verify.model import ArmName, LaunchOptions, ParityReport, VerifyRequest
from fsdp_migrate.verify.noise import (
    GROWTH_PER_STEP,
    RoundingSource,
    entry_limit,
    measured_limits,
    measured_origin,
    rounding_source,
)
from fsdp_migrate.verify.record import ArmRecord
from fsdp_migrate.verify.verdict import judge

if TYPE_CHECKING:
    from fsdp_migrate.verify.reference_job.config import ReferenceConfig

Noise = Callable[[RoundingSource], ArmRecord]
"""Runs the original once more, perturbed by as much as rounding may change it."""

_DEFAULTS = LaunchOptions()


def _silent(_line: str) -> None: ...


def verify_script(request: VerifyRequest, progress: Progress = _silent) -> ParityReport:
    """Run the original and the candidate of a user's script and compare them.

    Args:
        progress: told one line at a time what goes on.

    Raises:
        UsageError: no baseline, no such script, a job that never steps.
        JobError: an arm died or hung; the message names the first cause.
    """
    sources(request)  # what is wrong with the request is said before anything is started
    with started(request.launch, progress) as run:
        return script_report(run, request)


def script_report(run: Verification, request: VerifyRequest) -> ParityReport:
    """`verify_script` with ranks that are there already; `request.launch` is not looked at."""
    before, after = sources(request)
    original, linked = run.script(request, before, ArmName.ORIGINAL)
    candidate, _ = run.script(request, after, ArmName.CANDIDATE)

    def noise(rounding: RoundingSource) -> ArmRecord:
        return run.script(request, before, ArmName.NOISE, rounding=rounding)[0]

    notes = tuple(
        f"{path} is larger than 64 MiB: linked into the arms' copies, not copied" for path in linked
    )
    return report(run, original, candidate, noise, subject=request.script, baseline=before.words, notes=notes)


def verify_reference(
    config: ReferenceConfig, launch: LaunchOptions = _DEFAULTS, progress: Progress = _silent
) -> ParityReport:
    """Run the bundled job under FSDP1 and under FSDP2, in one launch, and compare them.

    Raises:
        UsageError: options that cannot be met on this machine.
        JobError: the job died or hung.
    """
    with started(launch, progress) as run:
        arms = run.reference(config, (ArmName.ORIGINAL, ArmName.CANDIDATE))

        def noise(rounding: RoundingSource) -> ArmRecord:
            return run.reference(config, (ArmName.NOISE,), rounding=rounding)[ArmName.NOISE]

        return report(
            run,
            arms[ArmName.ORIGINAL],
            arms[ArmName.CANDIDATE],
            noise,
            subject="the bundled reference job",
            baseline="the same job under FSDP1",
        )


def report(
    run: Verification,
    original: ArmRecord,
    candidate: ArmRecord,
    noise: Noise,
    *,
    subject: str,
    baseline: str,
    notes: tuple[str, ...] = (),
) -> ParityReport:
    """Compare two arms and put the verdict together.

    Args:
        subject: what was verified, for the reader.
        baseline: where the original came from, for the reader.
        notes: what the reader should know of how the arms ran.
    """
    run.progress("comparing")
    comparison, origin = _judged(run, original, candidate, noise)
    judged = judge(original, candidate, comparison, origin)
    if judged.passed and not comparison.bitwise:
        notes = (*notes, "the arms differ by rounding; see where the allowed differences come from")
    return ParityReport(
        passed=judged.passed,
        subject=subject,
        baseline=baseline,
        nproc=run.ranks,
        device=run.device,
        torch_version=original.torch_version,
        reduction="gradients summed in rank order in both arms" if run.fixed_order else "",
        steps=min(original.last_step, candidate.last_step),
        original=summary(ArmName.ORIGINAL, original),
        candidate=summary(ArmName.CANDIDATE, candidate),
        checks=judged.checks,
        first=next((one for one in comparison.differences if one.fails), None),
        largest=largest(comparison),
        causes=() if judged.passed else likely_causes(Evidence(original, candidate, comparison)),
        notices=(*judged.notices, *notes),
        substitutions=tuple(dict.fromkeys([*original.substitutions, *candidate.substitutions])),
        not_observed=tuple(dict.fromkeys([*original.not_observed, *candidate.not_observed])),
        warnings=judged.warnings,
        records=run.records if run.options.keep is not None else None,
    )


def _judged(
    run: Verification, original: ArmRecord, candidate: ArmRecord, noise: Noise
) -> tuple[Comparison, str]:
    """Compare, and judge what differs by what rounding can do.

    Returns:
        Differences with their limits, and where the limits come from.
    """
    comparison = compare(original, candidate)
    if not comparison.differences:
        return comparison, ""
    source = rounding_source(original, candidate, fixed_order=run.fixed_order)
    enters = f"rounding where it enters: {source.entry:.1e} for {source.reason}"
    entering = comparison.judged(entry_limit(source))
    if not any(one.fails for one in entering.differences):
        return entering, enters
    if entering.differences[0].fails or not run.options.measure_noise:
        return comparison.judged(
            entry_limit(source, GROWTH_PER_STEP)
        ), f"{enters}, and four times that each step"
    measured = compare(original, noise(source))
    return comparison.judged(measured_limits(measured, source)), measured_origin(source)
