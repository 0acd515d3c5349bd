"""Compares two arms and judges what differs by what rounding can do, measured where one can be run again."""

from __future__ import annotations

from collections.abc import Callable

from fsdp_migrate.verify.arms import Circumstances
from fsdp_migrate.verify.compare import Comparison, compare
from fsdp_migrate.verify.model import ArmName
from fsdp_migrate.verify.noise import (
    GROWTH_PER_STEP,
    MOST_GROWN,
    RoundingSource,
    added_otherwise,
    entry_limit,
    growing_limit,
    measured_limits,
    measured_origin,
    rounding_source,
)
from fsdp_migrate.verify.record import ArmRecord

EXACT = "none: --exact"
"""Where limits come from that allow nothing."""
Noise = Callable[[RoundingSource], ArmRecord]
"""Runs an arm once more, perturbed by as much as rounding may change it."""


def within_rounding(
    run: Circumstances, original: ArmRecord, candidate: ArmRecord, noise: Noise | None, noise_of: ArmName
) -> tuple[Comparison, str]:
    """Compare, and judge what differs by what rounding can do.

    Args:
        noise: `None` where no arm can be run again.
        noise_of: the arm that it runs again.

    Returns:
        Differences with their limits, and where the limits come from.
    """
    comparison = compare(original, candidate)
    if not comparison.differences:
        return comparison, ""
    if run.exact:
        return comparison, EXACT
    source = rounding_source(original, candidate, fixed_order=run.fixed_order)
    enters = f"rounding where it enters: {source.entry:.1e} for {source.reason}"
    entering = comparison.judged(entry_limit(source))
    if not any(one.fails for one in entering.differences):
        return entering, enters
    source = added_otherwise(source, entering)
    first = entering.differences[0]
    is_rounding = source.everywhere or not first.fails
    if not is_rounding or noise is None or not run.measure_noise:
        grows = f"{enters}, {GROWTH_PER_STEP:g} times that each step since, and {MOST_GROWN:g} at most"
        return comparison.judged(growing_limit(source, max(1, first.step))), grows
    again = original if noise_of is ArmName.ORIGINAL else candidate
    measured = compare(again, noise(source))
    return comparison.judged(measured_limits(measured, source)), measured_origin(source, noise_of.value)
