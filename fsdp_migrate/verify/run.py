"""Run both arms and compare them: the two entry points of the verifier."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fsdp_migrate.verify import timeline
from fsdp_migrate.verify.arms import Circumstances, Progress, Verification
from fsdp_migrate.verify.baseline import candidate_source, sources
from fsdp_migrate.verify.causes import likely_causes
from fsdp_migrate.verify.ended_early import (
    Ran,
    before_it_died,
    can_run_again,
    compared_part,
    run_again,
    run_arm,
)
from fsdp_migrate.verify.evidence import Evidence
from fsdp_migrate.verify.exact import of_rounding, order_words
from fsdp_migrate.verify.figures import curves, heat, largest, summary
from fsdp_migrate.verify.measured import Noise, within_rounding
from fsdp_migrate.verify.model import (
    ArmName,
    Died,
    LaunchOptions,
    ParityReport,
    Timeline,
    VerifyRequest,
)
from fsdp_migrate.verify.noise import RoundingSource, other_kernels, require_same_kernels
from fsdp_migrate.verify.notices import notes_of_run
from fsdp_migrate.verify.older_looks import seen_alike
from fsdp_migrate.verify.own_parts import leave_out_own_parts
from fsdp_migrate.verify.record import ArmRecord
from fsdp_migrate.verify.recorded import (
    RecordFacts,
    RecordSummary,
    first_steps,
    read_record,
    recorded,
    refuse_runs_of_record,
    require_new,
    write_record,
)
from fsdp_migrate.verify.releases import named_alike, require_fsdp2
from fsdp_migrate.verify.started import started
from fsdp_migrate.verify.third import which_side
from fsdp_migrate.verify.timing import Speed, time_reference, time_script
from fsdp_migrate.verify.verdict import judge

if TYPE_CHECKING:
    from fsdp_migrate.verify.reference_job.config import ReferenceConfig
    from fsdp_migrate.verify.resumed import Resumed

Third = Callable[[], ArmRecord]
"""Runs the original unsharded and in fp32."""
Timed = Callable[[], Speed]
"""Runs the arms for their speed."""

_DEFAULTS = LaunchOptions()


def _silent(_line: str) -> None: ...


def verify_script(request: VerifyRequest, progress: Progress = _silent) -> ParityReport:
    """Run the original and the candidate of a user's script and compare them.

    Args:
        progress: told one line at a time what goes on.

    Raises:
        UsageError: no baseline, no such script, a job that never steps.
        JobError: an arm died or hung before it had made a step; the message names the first cause. Where
            both made steps, these are compared, and the report says what ended an arm.
    """
    if recorded(request) is None:  # what is wrong with the request is said before anything is started
        sources(request)
    else:
        refuse_runs_of_record(request.launch)
    with started(request.launch, progress) as run:
        return script_report(run, request)


def script_report(run: Verification, request: VerifyRequest) -> ParityReport:
    """`verify_script` with ranks that are there already; `request.launch` is not looked at."""
    if (folder := recorded(request)) is not None:
        return _against_record(run, request, folder)
    before, after = sources(request)
    first = run_arm(run, request, before, ArmName.ORIGINAL)
    second = run_arm(run, request, after, ArmName.CANDIDATE)
    original, candidate, died = compared_part(first, second, run.options.steps)
    again = before_it_died(run, candidate.last_step) if died else run

    def noise(rounding: RoundingSource) -> ArmRecord:
        return run_again(again, request, before, ArmName.NOISE, rounding)

    def third() -> ArmRecord:
        return run_again(again, request, before, ArmName.UNSHARDED)

    def timed() -> Speed:
        return time_script(run, request, before, after)

    linked = [
        f"{path} is larger than 64 MiB: linked into the arms' copies, not copied" for path in first.linked
    ]
    more = can_run_again(run, died)
    return report(
        run.circumstances,
        original,
        candidate,
        noise if more else None,
        subject=request.script,
        baseline=before.words,
        notes=(*_resumed(request.checkpoint), *linked),
        third=third if run.options.third_arm and more else None,
        timed=timed if run.options.profile and not died else None,
        died=died,
    )


def _resumed(checkpoint: Resumed | None) -> tuple[str, ...]:
    return () if checkpoint is None else (checkpoint.words,)


def _against_record(run: Verification, request: VerifyRequest, folder: Path) -> ParityReport:
    """The candidate alone is run; the original is a record."""
    kept = read_record(folder)
    kept.require_like(run.ranks, fixed_order=run.fixed_order)
    source = candidate_source(request)
    ran = run_arm(run, request, source, ArmName.CANDIDATE)
    whole = Ran(first_steps(kept.arm, run.options.steps), [])
    original, candidate, died = compared_part(whole, ran, run.options.steps)
    if run.options.exact:
        require_same_kernels(original, candidate)
    again = before_it_died(run, candidate.last_step) if died else run

    def noise(rounding: RoundingSource) -> ArmRecord:
        return run_again(again, request, source, ArmName.NOISE, rounding)

    return report(
        run.circumstances,
        original,
        candidate,
        noise if other_kernels(original, candidate) and can_run_again(run, died) else None,
        subject=request.script,
        baseline=kept.words,
        notes=_resumed(request.checkpoint),
        noise_of=ArmName.CANDIDATE,
        died=died,
    )


def compare_records(
    before: Path, after: Path, progress: Progress = _silent, *, exact: bool = False
) -> ParityReport:
    """Compare two records; nothing is run.

    Args:
        exact: no difference is allowed.

    Raises:
        UsageError: a directory is no record, or the records are of other numbers of processes; or `exact`,
            and they were made where operations round otherwise.
    """
    left, right = read_record(before), read_record(after)
    right.require_like(left.ranks, fixed_order=left.fixed_order)
    steps = min(left.arm.last_step, right.arm.last_step)
    if exact:
        require_same_kernels(left.arm, right.arm)
    return report(
        Circumstances(right.ranks, right.device, left.fixed_order, False, None, progress, exact),
        first_steps(left.arm, steps),
        first_steps(right.arm, steps),
        None,
        subject=right.words,
        baseline=left.words,
        notes=tuple(left.differences_of_environment(right)),
        same_api=True,
    )


def record_script(request: VerifyRequest, destination: Path, progress: Progress = _silent) -> RecordSummary:
    """Run a script as it is, FSDP1 or FSDP2, and keep what was seen of it as a record.

    Raises:
        UsageError: the destination exists, no such script, a job that never steps.
        JobError: the job died or hung.
    """
    require_new(destination)
    candidate_source(request)  # what is wrong with the request is said before anything is started
    with started(request.launch, progress) as run:
        return keep_record(run, request, destination)


def keep_record(run: Verification, request: VerifyRequest, destination: Path) -> RecordSummary:
    """`record_script` with ranks that are there already."""
    source = candidate_source(request)
    arm, _ = replace(run, alone=True).script(request, source, ArmName.CANDIDATE)
    facts = RecordFacts(
        request.script, request.arguments, run.ranks, run.device, run.fixed_order, source.root
    )
    if not run.speaks:
        return RecordSummary(destination, arm.kind, arm.last_step, run.ranks, 0)
    return write_record(destination, run.records / ArmName.CANDIDATE.value, arm, facts)


def verify_reference(
    config: ReferenceConfig,
    launch: LaunchOptions = _DEFAULTS,
    progress: Progress = _silent,
    checkpoint: Resumed | None = None,
) -> ParityReport:
    """Run the bundled job under FSDP1 and under FSDP2, in one launch, and compare them.

    Args:
        checkpoint: what both arms resume from.

    Raises:
        UsageError: options that cannot be met on this machine.
        JobError: the job died or hung.
    """
    if checkpoint is not None:
        config = replace(config, old=checkpoint.old, new=checkpoint.new)
    again = replace(config, save="")  # runs after the first
    with started(launch, progress) as run:
        require_fsdp2(run.device, "the bundled job under FSDP2")
        arms = run.reference(config, (ArmName.ORIGINAL, ArmName.CANDIDATE))

        def noise(rounding: RoundingSource) -> ArmRecord:
            return run.reference(again, (ArmName.NOISE,), rounding=rounding)[ArmName.NOISE]

        def third() -> ArmRecord:
            return run.reference(again, (ArmName.UNSHARDED,))[ArmName.UNSHARDED]

        return report(
            run.circumstances,
            arms[ArmName.ORIGINAL],
            arms[ArmName.CANDIDATE],
            noise,
            subject="the bundled reference job",
            baseline="the same job under FSDP1",
            notes=_resumed(checkpoint),
            third=third if launch.third_arm else None,
            timed=(lambda: time_reference(run, again)) if launch.profile else None,
        )


def report(
    run: Circumstances,
    original: ArmRecord,
    candidate: ArmRecord,
    noise: Noise | None,
    *,
    subject: str,
    baseline: str,
    notes: tuple[str, ...] = (),
    third: Third | None = None,
    timed: Timed | None = None,
    same_api: bool = False,
    noise_of: ArmName = ArmName.ORIGINAL,
    died: tuple[Died, ...] = (),
) -> ParityReport:
    """Compare two arms and put the verdict together.

    Args:
        noise: `None` where no arm can be run again.
        noise_of: the arm that it runs again.
        subject: what was verified, for the reader.
        baseline: where the original came from, for the reader.
        notes: what the reader should know of how the arms ran.
        third: runs the arm that tells which side is wrong; `None` where none is wanted.
        same_api: whether both arms may be FSDP1.
        timed: runs both arms for their speed; `None` where that is not wanted.
        died: the arms of which there is only a part.
    """
    run.progress("comparing")
    original, candidate = named_alike(original, candidate)
    seen_alike(original, candidate)
    notes = (*notes, *leave_out_own_parts(original, candidate))
    comparison, origin = within_rounding(run, original, candidate, noise, noise_of)
    first = next((one for one in comparison.differences if one.fails), None)
    aside = which_side(original, candidate, third(), first or comparison.first) if third else ""
    judged = judge(original, candidate, comparison, origin, same_api=same_api)
    notes = (*notes, *notes_of_run(original, candidate, comparison, passed=judged.passed))
    causes = () if judged.passed else likely_causes(Evidence(original, candidate, comparison))
    if run.exact and not judged.passed:
        causes = of_rounding(run, original, candidate, comparison) or causes
    steps = min(original.last_step, candidate.last_step)
    speed = timed() if timed else Speed((), _timelines(original, candidate))
    return ParityReport(
        passed=judged.passed and not died,
        subject=subject,
        baseline=baseline,
        nproc=run.ranks,
        device=run.device,
        torch_version=candidate.torch_version,
        reduction=order_words(run, original, candidate),
        steps=steps,
        original=summary(ArmName.ORIGINAL, original),
        candidate=summary(ArmName.CANDIDATE, candidate),
        checks=judged.checks,
        first=first,
        largest=largest(comparison),
        causes=causes,
        notices=(*judged.notices, *notes, *speed.notes),
        substitutions=tuple(dict.fromkeys([*original.substitutions, *candidate.substitutions])),
        not_observed=tuple(dict.fromkeys([*original.not_observed, *candidate.not_observed])),
        warnings=judged.warnings,
        third=aside,
        performance=speed.performance,
        curves=curves(comparison, steps),
        heat=heat(comparison, original.shapes, steps),
        records=run.kept,
        timelines=speed.timelines,
        died=died,
        exact=run.exact,
    )


def _timelines(original: ArmRecord, candidate: ArmRecord) -> tuple[Timeline, ...]:
    found = (timeline.of_arm(ArmName.ORIGINAL, original), timeline.of_arm(ArmName.CANDIDATE, candidate))
    return tuple(one for one in found if one is not None)
