"""From two records and their comparison to checks, notices and pass or fail; pure."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from fsdp_migrate.verify import world_sizes
from fsdp_migrate.verify.answer_calls import calls_check
from fsdp_migrate.verify.clipping_causes import norms_reported
from fsdp_migrate.verify.compare import Comparison
from fsdp_migrate.verify.model import ANSWER, CLIPPED, SAVED, Check, Difference, Outcome
from fsdp_migrate.verify.model_inputs import parted
from fsdp_migrate.verify.notices import not_a_number, notices_of, warnings_beside_equal_numbers, warnings_of
from fsdp_migrate.verify.record import ArmRecord
from fsdp_migrate.verify.resumed import resumed_check
from fsdp_migrate.verify.saved_numbers import saved_numbers_check
from fsdp_migrate.verify.sharding_causes import listed
from fsdp_migrate.verify.structural_checks import structural_checks

_STATE = "optimizer state"
_STRUCTURE = "Parameters: names and shapes"
_TITLES = {
    "loss": "Loss",
    "gradient": "Gradients before clipping",
    "gradient norm": "Gradient norm",
    CLIPPED: "Gradients after clipping",
    "weight": "Weights after each step",
    _STATE: "Optimizer state",
    "buffer": "Buffers",
}
_WHERE_ANY = {
    "weight of another model": "Weights of other models",
    SAVED: "Tensors saved in checkpoints",
    ANSWER: "Answers without gradients",
}
"""Checks of what most jobs do not have; left out where neither arm has it."""


@dataclass(frozen=True, slots=True)
class Judged:
    """Everything `judge` found."""

    checks: tuple[Check, ...]
    notices: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Parity holds: nothing differs by more than rounding, and enough was seen to say so."""
        return not any(check.outcome is Outcome.DIFFERS for check in self.checks)


def _enough(checks: list[Check], original: ArmRecord, candidate: ArmRecord) -> Check:
    """A verdict on what nobody saw would be worth nothing."""
    title, needed = "Enough was observed to judge", (_STRUCTURE, "Initial weights", _TITLES["weight"])
    unseen = [one.title for one in checks if one.title in needed and one.outcome is Outcome.NOT_OBSERVED]
    if unseen:
        return Check(title, Outcome.DIFFERS, f"not observed: {', '.join(unseen)}")
    weights = [arm.tensors(0, "weight") for arm in (original, candidate)]
    lost = [name for name, shape in original.shapes.items() if math.prod(shape) and name not in weights[0]]
    lost += [name for name, shape in candidate.shapes.items() if math.prod(shape) and name not in weights[1]]
    if lost:
        return Check(title, Outcome.DIFFERS, f"not observed: weights of {listed(sorted(set(lost)))}")
    if not_a_number(original) == 1 == not_a_number(candidate):
        return Check(title, Outcome.DIFFERS, "the loss is not a number from the first step on, in both arms")
    return Check(title, Outcome.EQUAL)


def judge(
    original: ArmRecord,
    candidate: ArmRecord,
    comparison: Comparison,
    origin: str,
    *,
    same_api: bool = False,
) -> Judged:
    """Turn a comparison with limits into checks.

    Args:
        origin: where the limits come from, for the report.
        same_api: whether both arms may be FSDP1, as two records of one program are.
    """
    checks = [
        _structure(original, candidate),
        _data(original, candidate, comparison),
        _numbers(
            comparison,
            "Initial weights",
            origin,
            lambda one: (one.step, one.quantity) == (0, "weight"),
            original,
        ),
        *(_by_quantity(comparison, quantity, origin, original, candidate) for quantity in _TITLES),
        *(
            _by_quantity(comparison, quantity, origin, original, candidate)
            for quantity in _WHERE_ANY
            if _is_there(quantity, original, candidate)
        ),
        *resumed_check(original, candidate),
        *saved_numbers_check(original, candidate),
        *calls_check(original, candidate, apart_since=_apart_since(comparison)),
        *structural_checks(original, candidate, comparison, same_api=same_api),
    ]
    checks.append(_enough(checks, original, candidate))
    notices = tuple(notices_of(original, candidate, comparison))
    warnings = tuple(warnings_of(original, candidate))
    judged = Judged(tuple(checks), notices, warnings)
    if judged.passed:
        beside = warnings_beside_equal_numbers(original, candidate, comparison)
        judged = Judged(judged.checks, notices, (*warnings, *beside))
    return judged


def _apart_since(comparison: Comparison) -> int | None:
    """The first step after which a model can compute anything else."""
    changed = ("weight", "weight of another model", "buffer", ANSWER)
    return min((one.step for one in comparison.differences if one.quantity in changed), default=None)


def _is_there(quantity: str, original: ArmRecord, candidate: ArmRecord) -> bool:
    """In either arm; files in both, because a checkpoint may be written by other means."""
    found = [any(kind == quantity for _, kind in arm.parts) for arm in (original, candidate)]
    return all(found) if quantity in (SAVED, ANSWER) else any(found)


def _structure(original: ArmRecord, candidate: ArmRecord) -> Check:
    left, right = original.shapes, candidate.shapes
    title = _STRUCTURE
    if not left:
        return Check(title, Outcome.NOT_OBSERVED, "no model with trainable parameters was called")
    wrong = sorted(name for name in set(left) | set(right) if left.get(name) != right.get(name))
    frozen = sorted(
        name for name in set(left) & set(right) if original.trainable[name] != candidate.trainable[name]
    )
    if wrong or frozen:
        what = (
            f"{len(wrong)} differ ({', '.join(wrong[:3])})"
            if wrong
            else f"requires_grad of {', '.join(frozen[:3])}"
        )
        return Check(title, Outcome.DIFFERS, what, len(left))
    return Check(title, Outcome.EQUAL, compared=len(left))


def _data(original: ArmRecord, candidate: ArmRecord, comparison: Comparison) -> Check:
    title = "Model inputs"
    if world_sizes.differ(original, candidate):
        if world_sizes.batches_are_equal(original, candidate):
            return Check(title, Outcome.EQUAL, "those of all ranks together")
        words = f"{original.ranks} and {candidate.ranks} ranks take in other parts of a batch"
        return Check(title, Outcome.NOT_OBSERVED, words)
    steps = sorted(set(original.steps) & set(candidate.steps))
    seen = sum(len(one.inputs) for step in steps for one in original.steps[step])
    found = parted(original, candidate, comparison)
    if found is None:
        return Check(title, Outcome.EQUAL if seen else Outcome.NOT_OBSERVED, compared=seen)
    if found.by_rounding:
        words = f"equal up to step {found.step}, and computed from weights that differ by rounding then"
        return Check(title, Outcome.NOT_OBSERVED, words)
    return Check(title, Outcome.DIFFERS, f"first in step {found.step} on rank {found.ranks[0]}", seen)


def _by_quantity(
    comparison: Comparison, quantity: str, origin: str, original: ArmRecord, candidate: ArmRecord
) -> Check:
    def wanted(one: Difference) -> bool:
        return _kind(one.quantity) == quantity and not (one.step == 0 and quantity == "weight")

    if quantity == "gradient norm":
        calls = [norms_reported(arm) for arm in (original, candidate)]
        if calls[0] != calls[1]:
            detail = (
                f"norms were reported {calls[0]} times in the original and {calls[1]} times in the candidate"
            )
            return Check(_TITLES[quantity], Outcome.NOT_OBSERVED, detail)
    title = _TITLES.get(quantity) or _WHERE_ANY[quantity]
    return _numbers(comparison, title, origin, wanted, original, quantity)


def _kind(quantity: str) -> str:
    return _STATE if quantity.startswith(_STATE) else quantity


def _numbers(
    comparison: Comparison,
    title: str,
    origin: str,
    wanted: Callable[[Difference], bool],
    original: ArmRecord,
    quantity: str = "weight",
) -> Check:
    found = [one for one in comparison.differences if wanted(one)]
    compared = sum(count for kind, count in comparison.compared.items() if _kind(kind) == quantity)
    if title == "Initial weights":
        compared = len(original.tensors(0, "weight"))
    elif quantity == "weight":
        compared -= len(original.tensors(0, "weight"))
    lonely = [one for one in comparison.unmatched if _kind(one[1]) == quantity and title != "Initial weights"]
    if lonely:
        step, kind, name, lacking = lonely[0]
        detail = f"{len(lonely)} without counterpart: {kind} of {name}, step {step} (missing in: {lacking})"
        return Check(title, Outcome.DIFFERS, detail, compared)
    if not compared:
        return Check(title, Outcome.NOT_OBSERVED)
    if not found:
        return Check(title, Outcome.EQUAL, compared=compared, numbers=True)
    worst = max(found, key=lambda one: one.relative)
    failing = [one for one in found if one.fails]
    if failing:
        one = failing[0]
        detail = f"{len(failing)} of {compared} differ, first {one.name} in step {one.step}"
        return Check(title, Outcome.DIFFERS, detail, compared, worst.relative, one.limit, origin)
    return Check(
        title,
        Outcome.WITHIN,
        f"{len(found)} of {compared} differ",
        compared,
        worst.relative,
        worst.limit,
        origin,
    )
