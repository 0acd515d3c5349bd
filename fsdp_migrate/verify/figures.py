"""The figures that stand beside the verdict: largest differences, times, memory, losses of each arm; pure."""

from __future__ import annotations

import math
import statistics

from fsdp_migrate.verify.compare import Comparison
from fsdp_migrate.verify.model import ArmName, ArmSummary, Difference
from fsdp_migrate.verify.record import ArmRecord

_LARGEST = 8


def largest(comparison: Comparison) -> tuple[Difference, ...]:
    """The worst differences by relative size, one for each quantity and step."""
    ranked = sorted(comparison.differences, key=lambda one: one.relative, reverse=True)
    chosen: dict[tuple[str, int], Difference] = {}
    for one in ranked:
        chosen.setdefault((one.quantity, one.step), one)
    return tuple(sorted(chosen.values(), key=lambda one: one.relative, reverse=True)[:_LARGEST])


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
        units=tuple(unit.name for unit in arm.units),
        parameters=len(arm.shapes),
        numel=sum(math.prod(shape) for shape in arm.shapes.values()),
        collectives=tuple(sorted(steps[-1][0].collectives.items())) if steps else (),
        losses=tuple(_mean([loss for one in facts for loss in one.losses]) for facts in steps),
        gradient_norms=tuple(
            norms[0][0]
            for step in sorted(arm.steps)
            if step <= arm.last_step and (norms := arm.clipped_norms(step))
        ),
    )


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else float("nan")
