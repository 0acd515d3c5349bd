"""Arms that crash, hang or are killed after some steps: the steps before are compared all the same."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from fsdp_migrate.errors import JobError
from fsdp_migrate.verify.arms import Verification
from fsdp_migrate.verify.baseline import Source
from fsdp_migrate.verify.launcher import RankServer
from fsdp_migrate.verify.model import AT_THE_END, SAVED, ArmName, Died, VerifyRequest
from fsdp_migrate.verify.noise import RoundingSource
from fsdp_migrate.verify.record import ArmRecord
from fsdp_migrate.verify.recorded import first_steps
from fsdp_migrate.verify.written import counterparts


@dataclass(frozen=True, slots=True)
class Ran:
    """An arm that was run to its end, whatever that was.

    Args:
        linked: large files that were linked into its copy instead of copied.
        error: what ended it before its time; `None` where nothing did.
    """

    record: ArmRecord
    linked: list[str]
    error: JobError | None = None


def run_arm(run: Verification, request: VerifyRequest, source: Source, arm: ArmName) -> Ran:
    """Run one arm of a script; one that dies is compared as far as every rank got.

    Raises:
        JobError: it died before it had made a step; or it is the original, and no other arm can be started
            after it, because its ranks do not come from a process of ours.
    """
    try:
        return Ran(*run.script(request, source, arm))
    except JobError as error:
        again = isinstance(run.server, RankServer) and run.server.alive
        if arm is ArmName.ORIGINAL and not again:
            raise
        left = run.left_by(arm)
        if not left.last_step:
            raise
        return Ran(left, [], error)


def compared_part(
    original: Ran, candidate: Ran, wanted: int
) -> tuple[ArmRecord, ArmRecord, tuple[Died, ...]]:
    """What both arms have, and the arms that died; all of it where none did.

    Args:
        wanted: steps after which an arm is stopped.
    """
    arms = original.record, candidate.record
    if original.error is None and candidate.error is None:
        return *arms, ()
    died = tuple(
        Died(name, _where(ran.record.last_step, other.record, wanted), ran.error.message, ran.error.hint)
        for name, ran, other in (
            (ArmName.ORIGINAL, original, candidate),
            (ArmName.CANDIDATE, candidate, original),
        )
        if ran.error is not None
    )
    steps = min(arm.last_step for arm in arms)
    left, right = (first_steps(arm, steps) for arm in arms)
    _drop_lonely_files(left, right, steps)
    pairs = list(counterparts(left.written, right.written))
    left.written = {name: left.written[name] for name, _ in pairs}
    right.written = {name: right.written[name] for _, name in pairs}
    for arm in (left, right):
        for parts in arm.parts.values():
            for name in [name for name in parts if AT_THE_END in name]:
                del parts[name]
    return left, right, died


def before_it_died(run: Verification, steps: int) -> Verification:
    """The same ranks for arms that are run again: they stop before the step that could not be made."""
    return replace(run, options=replace(run.options, steps=steps))


def run_again(
    run: Verification,
    request: VerifyRequest,
    source: Source,
    arm: ArmName,
    rounding: RoundingSource | None = None,
) -> ArmRecord:
    """An arm once more, in another way; one that died may die again, after the steps that are wanted."""
    try:
        return run.script(request, source, arm, rounding=rounding)[0]
    except JobError:
        left = run.left_by(arm)
        if left.last_step < run.options.steps:
            raise
        return left


def can_run_again(run: Verification, died: tuple[Died, ...]) -> bool:
    """Whether another arm can be started: ranks of several machines end with the first one that dies."""
    return not died or isinstance(run.server, RankServer)


def _where(steps: int, other: ArmRecord, wanted: int) -> str:
    """Between which steps; a step is over with its `optimizer.step()`."""
    is_over = steps >= wanted or (other.last_step == steps and "the script ended" in other.ended.values())
    return f"after step {steps}" if is_over else f"in step {steps + 1}"


def _drop_lonely_files(left: ArmRecord, right: ArmRecord, last: int) -> None:
    """Files of the last step that one arm did not come to write are no difference of the steps."""
    counts = [Counter((one.rank, one.step) for one in arm.saves) for arm in (left, right)]
    both = counts[0] & counts[1]
    kept = [arm.parts.get((last, SAVED), {}) for arm in (left, right)]
    names = set(kept[0]) & set(kept[1])
    for arm, parts in zip((left, right), kept, strict=True):
        seen: Counter[tuple[int, int]] = Counter()
        saves = []
        for one in arm.saves:
            seen[one.rank, one.step] += 1
            if one.step < last or seen[one.rank, one.step] <= both[one.rank, one.step]:
                saves.append(one)
        arm.saves = saves
        arm.parts[last, SAVED] = {name: part for name, part in parts.items() if name in names}
        if not arm.parts[last, SAVED]:
            del arm.parts[last, SAVED]
