"""Calls of models without gradients, beside each other: evaluation, generation, teachers, averages; pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from fsdp_migrate.verify import world_sizes
from fsdp_migrate.verify.answer import Answer
from fsdp_migrate.verify.model import Check, Outcome
from fsdp_migrate.verify.record import ArmRecord

_Pair = tuple[Answer, Answer]


def answer_pairs(original: ArmRecord, candidate: ArmRecord) -> Iterator[_Pair]:
    """The same calls of both arms, in their order; none where a model is called more often in one arm."""
    if world_sizes.differ(original, candidate):
        return
    by_call = {one.call: one for one in candidate.answers}
    counts = [Counter(one.call[:3] for one in arm.answers) for arm in (original, candidate)]
    last = min(original.last_step, candidate.last_step)
    for one in original.answers:
        if counts[0][one.call[:3]] == counts[1][one.call[:3]] and one.step <= last:
            yield one, by_call[one.call]


def asked_alike(original: ArmRecord, candidate: ArmRecord) -> set[tuple[int, str]]:
    """(step, what names of its tensors begin with) of calls that were given the same in both arms."""
    return {
        (left.step, left.name)
        for left, right in answer_pairs(original, candidate)
        if left.inputs == right.inputs
    }


def asked_otherwise(original: ArmRecord, candidate: ArmRecord) -> _Pair | None:
    """The first call that is given something else."""
    pairs = answer_pairs(original, candidate)
    return next((pair for pair in pairs if pair[0].inputs != pair[1].inputs), None)


def calls_check(original: ArmRecord, candidate: ArmRecord, *, apart_since: int | None) -> list[Check]:
    """Whether models are called with the same inputs; nothing where none is called without gradients.

    Args:
        apart_since: the first step in which anything differs; inputs that are computed from it (what was
            sampled) may be others without a mistake.
    """
    title, pairs = "Inputs of calls without gradients", list(answer_pairs(original, candidate))
    if not pairs:
        return []
    other = asked_otherwise(original, candidate)
    if other is None:
        return [Check(title, Outcome.EQUAL, compared=len(pairs))]
    if apart_since is not None and apart_since <= other[0].step:
        words = f"equal before step {other[0].step}, and computed from weights that differ by rounding then"
        return [Check(title, Outcome.NOT_OBSERVED, words)]
    return [Check(title, Outcome.DIFFERS, f"first in {other[0].words}", len(pairs))]


@dataclass(frozen=True, slots=True)
class Missing:
    """A call without gradients that is made in one arm alone, after `step` steps."""

    step: int
    words: str


def missing_call(original: ArmRecord, candidate: ArmRecord) -> Missing | None:
    """A model that is no longer called without gradients where it was, or is now.

    What follows the last step is left out: one arm may have been stopped there.
    """
    if world_sizes.differ(original, candidate):
        return None
    last = min(original.last_step, candidate.last_step)
    left, right = ({one.call: one for one in arm.answers if one.step < last} for arm in (original, candidate))
    lost, new = [key for key in left if key not in right], [key for key in right if key not in left]
    if not lost and not new:
        return None
    arms = ("original", "candidate") if lost else ("candidate", "original")
    one = left[lost[0]] if lost else right[new[0]]
    return Missing(
        one.step,
        f"a model ({one.model}) is called without gradients ({one.words}) in the {arms[0]} and not in the "
        f"{arms[1]}: an evaluation is gone or new, or another model is asked",
    )
