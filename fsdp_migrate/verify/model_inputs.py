"""Whether the models of both arms were given the same tensors; pure.

Digests tell equality to the last bit. What one model is given by another (a critic the pictures of a
generator, a student the answers of a teacher) is computed with weights, and once those differ by rounding it
does too.
"""

from __future__ import annotations

from dataclasses import dataclass

from fsdp_migrate.verify.compare import Comparison
from fsdp_migrate.verify.record import ArmRecord

_OF_INPUTS = ("loss", "gradient")


@dataclass(frozen=True, slots=True)
class Parted:
    """A step in which some rank's models were given something else.

    Args:
        by_rounding: the arms differed by rounding before that step, and its losses and gradients differ by no
            more: other data would show in both.
    """

    step: int
    ranks: tuple[int, ...]
    by_rounding: bool


def parted(original: ArmRecord, candidate: ArmRecord, comparison: Comparison) -> Parted | None:
    """Where inputs part, of equally many ranks; `None` where they are equal.

    Returns:
        The first step where rounding does not explain it, else the first.
    """
    explained: Parted | None = None
    for step in sorted(set(original.steps) & set(candidate.steps)):
        pairs = list(zip(original.steps[step], candidate.steps[step], strict=False))
        ranks = tuple(rank for rank, (left, right) in enumerate(pairs) if left.inputs != right.inputs)
        if not ranks:
            continue
        as_many = all(len(left.inputs) == len(right.inputs) for left, right in pairs)
        if not (as_many and _rounding_explains(comparison, step)):
            return Parted(step, ranks, by_rounding=False)
        explained = explained or Parted(step, ranks, by_rounding=True)
    return explained


def _rounding_explains(comparison: Comparison, step: int) -> bool:
    before = [one for one in comparison.differences if 0 < one.step < step]
    now = [one for one in comparison.differences if one.step == step and one.quantity in _OF_INPUTS]
    return bool(before) and not any(one.fails for one in (*before, *now))
