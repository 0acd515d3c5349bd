"""Which of two arms that differ is nearer to a third, which is not sharded and computes in fp32; pure."""

from __future__ import annotations

import math

from fsdp_migrate.verify.compare import Comparison, compare
from fsdp_migrate.verify.model import Difference
from fsdp_migrate.verify.record import ArmRecord

_CLEARLY = 3.0


def which_side(
    original: ArmRecord, candidate: ArmRecord, reference: ArmRecord, first: Difference | None
) -> str:
    """One sentence: which arm stands further from the reference where they first differ, by numbers.

    Args:
        first: the first difference of the two arms; `None` where they are equal.
    """
    apart = compare(original, reference), compare(candidate, reference)
    if first is None:
        worst = _largest(apart[0], None, "loss")
        return (
            "both arms are equal; against a third, unsharded and in fp32, their losses differ by at most "
            f"{worst:.1e}"
        )
    left, right = (_largest(each, first.step, first.quantity, first.name) for each in apart)
    where = f"{first.quantity} of {first.name} in step {first.step}"
    numbers = (
        f"against a third arm, unsharded and in fp32, the {where} is off by {left:.1e} in the "
        "original and by "
        f"{right:.1e} in the candidate"
    )
    if right > _CLEARLY * left:
        return f"{numbers}: the candidate is the one that is wrong"
    if left > _CLEARLY * right:
        return f"{numbers}: the original is the one that is wrong"
    return f"{numbers}: neither is clearly the wrong one"


def _largest(comparison: Comparison, step: int | None, quantity: str, name: str | None = None) -> float:
    found = [
        one.relative
        for one in comparison.differences
        if one.quantity == quantity and step in (None, one.step) and name in (None, one.name)
    ]
    finite = [one for one in found if math.isfinite(one)]
    return math.inf if len(finite) < len(found) else max(finite, default=0.0)
