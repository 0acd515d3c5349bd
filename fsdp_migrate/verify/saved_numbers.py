"""Plain numbers in what jobs save: epochs, steps, learning rates; pure.

Numbers are told apart by their keys. Those that count the training or set it are the same in two equal jobs,
to the last digit. Others are not looked at: losses round, times, rates, sizes and seeds differ from
run to run.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fsdp_migrate.verify import world_sizes
from fsdp_migrate.verify.evidence import Evidence
from fsdp_migrate.verify.model import Cause, Check, Outcome
from fsdp_migrate.verify.record import ArmRecord

_COUNTS = re.compile(
    r"(^|_)(epochs?|steps?|iter|iters|iterations?|updates?|last_epoch|step_count|samples|examples|"
    r"tokens|(samples|examples|tokens|batches)_(seen|consumed|trained))$",
    re.IGNORECASE,
)
_SETTINGS = re.compile(r"(^|_)(lr|lrs|learning_rate|weight_decay|momentum|eps|betas)$", re.IGNORECASE)
_NEVER = re.compile(
    r"(^|_)(time\w*|seconds?|secs?|ms|per|speed|throughput|eta|mem\w*|size|pid|seeds?|rng|random)(_|$)",
    re.IGNORECASE,
)
_SAME = 1e-12


@dataclass(frozen=True, slots=True)
class SavedNumber:
    """One number that both arms saved."""

    key: str
    step: int
    original: float
    candidate: float

    @property
    def words(self) -> str:
        """For the report."""
        values = f"{self.candidate:.12g} in the candidate and {self.original:.12g} in the original"
        return f"{self.key} of what is saved after step {self.step} is {values}"


def saved_numbers_check(original: ArmRecord, candidate: ArmRecord) -> list[Check]:
    """Whether they are the same; none where nothing can be compared."""
    title = "Counts and settings saved"
    pairs = list(_pairs(original, candidate))
    if not pairs:
        return []
    found = list(_differing(pairs))
    if not found:
        return [Check(title, Outcome.EQUAL, compared=len(pairs))]
    return [Check(title, Outcome.DIFFERS, f"{len(found)} differ: {found[0].words}", len(pairs))]


def saved_numbers(evidence: Evidence) -> Cause | None:
    """A count or a setting in a checkpoint is another."""
    found = list(_differing(_pairs(evidence.original, evidence.candidate)))
    if not found:
        return None
    return Cause(
        "saved-numbers",
        f"{found[0].words} ({len(found)} such numbers in all): a job that resumes from it goes on elsewhere",
        "count and schedule as the original does, and save where it does: before or after scheduler.step() "
        "and the counter is not the same",
    )


def _differing(pairs: Iterable[SavedNumber]) -> Iterator[SavedNumber]:
    return (one for one in pairs if not math.isclose(one.original, one.candidate, rel_tol=_SAME))


def _pairs(original: ArmRecord, candidate: ArmRecord) -> Iterator[SavedNumber]:
    """Numbers under the same keys, where both arms save as many files after the same steps."""
    if world_sizes.differ(original, candidate):
        return
    for rank in range(original.ranks):
        left, right = (arm.saved_numbers.get(rank, []) for arm in (original, candidate))
        if [step for step, _ in left] != [step for step, _ in right]:
            continue
        for (step, before), (_, after) in zip(left, right, strict=True):
            for key, value in before.items():
                if key in after and _is_told(key):
                    yield SavedNumber(key, step, value, after[key])


def _is_told(key: str) -> bool:
    """By its last word that is no position in a list: `scheduler._last_lr.0` is a `_last_lr`."""
    words = [word for word in key.split(".") if not word.isdigit()]
    if not words or any(_NEVER.search(word) for word in words):
        return False
    return bool(_COUNTS.search(words[-1]) or _SETTINGS.search(words[-1]))
