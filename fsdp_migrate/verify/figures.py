"""The figures that stand beside the verdict: largest differences, times, memory, losses of each arm; pure."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterable

from fsdp_migrate.verify.compare import Comparison
from fsdp_migrate.verify.model import ArmName, ArmSummary, Difference
from fsdp_migrate.verify.record import ArmRecord

_OF_OTHERS = re.compile(r"other\d+(\.|$)")
_LARGEST = 8
_ROWS = 400


def largest(comparison: Comparison) -> tuple[Difference, ...]:
    """The worst differences by relative size, one for each quantity and step."""
    ranked = sorted(comparison.differences, key=lambda one: one.relative, reverse=True)
    chosen: dict[tuple[str, int], Difference] = {}
    for one in ranked:
        chosen.setdefault((one.quantity, one.step), one)
    return tuple(sorted(chosen.values(), key=lambda one: one.relative, reverse=True)[:_LARGEST])


def curves(comparison: Comparison, steps: int) -> tuple[tuple[str, tuple[float, ...]], ...]:
    """Per quantity, the largest relative difference of each step; 0 where all is equal."""
    found: dict[str, list[float]] = {}
    for kind in comparison.compared:
        found.setdefault(_short(kind), [0.0] * steps)
    for one in comparison.differences:
        if 1 <= one.step <= steps:
            row = found.setdefault(_short(one.quantity), [0.0] * steps)
            row[one.step - 1] = max(row[one.step - 1], one.relative)
    return tuple((kind, tuple(row)) for kind, row in found.items())


def _short(quantity: str) -> str:
    return "optimizer state" if quantity.startswith("optimizer state") else quantity


def heat(
    comparison: Comparison, names: Iterable[str], steps: int
) -> tuple[tuple[str, tuple[float, ...]], ...]:
    """Per parameter, how far its weight is apart after each step; the `_ROWS` that differ most.

    Args:
        names: in the model's order, which is kept.
    """
    apart = {(one.name, one.step): one.relative for one in comparison.differences if one.quantity == "weight"}
    rows = [(name, tuple(apart.get((name, step), 0.0) for step in range(steps + 1))) for name in names]
    kept = {name for name, _ in sorted(rows, key=lambda row: max(row[1]), reverse=True)[:_ROWS]}
    return tuple(row for row in rows if row[0] in kept)


def summary(name: ArmName, arm: ArmRecord) -> ArmSummary:
    """Figures of one arm; the first step warms up and is left out of the median."""
    steps = [arm.steps[step] for step in sorted(arm.steps) if step <= arm.last_step]
    timed = [max(one.seconds for one in facts) for facts in steps[1:]]
    probes = [max(one.probe_seconds for one in facts) for facts in steps[1:] or steps]
    return ArmSummary(
        name=name,
        kind=arm.kind,
        steps=arm.last_step,
        step_seconds=statistics.median(timed) if timed else None,
        probe_seconds=statistics.median(probes) if probes else 0.0,
        peak_bytes=arm.peak_bytes,
        peak_is=arm.peak_is,
        units=tuple(unit.name for unit in arm.units if not _OF_OTHERS.match(unit.name)),
        parameters=len(arm.shapes),
        numel=sum(math.prod(shape) for shape in arm.shapes.values()),
        collectives=tuple(sorted(steps[-1][0].collectives.items())) if steps else (),
        losses=tuple(_mean([loss for one in facts for loss in one.own_losses]) for facts in steps),
        gradient_norms=tuple(
            norms[0][0]
            for step in sorted(arm.steps)
            if step <= arm.last_step and (norms := arm.clipped_norms(step))
        ),
    )


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else float("nan")
