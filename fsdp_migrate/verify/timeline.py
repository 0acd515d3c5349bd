"""What ran when in one step of an arm: from the moments a rank noted, or from a GPU's trace; pure.

On a CPU everything is one thread's: the phases of the step, and in them the time that calls of collectives
took. On a GPU phases are those of the host that launches kernels; communication and computation are the
kernels' own intervals, as `verify.overlap` tells them apart, and may run at once and later than their phase.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from fsdp_migrate.verify.model import ArmName, Timeline
from fsdp_migrate.verify.overlap import Interval, kind_of_kernel, merged
from fsdp_migrate.verify.record import ArmRecord
from fsdp_migrate.verify.spec import PHASE

KINDS = ("forward", "backward", "optimizer", "communication", "computation")
"""In the order they are shown in."""
_SHORTEST = 1 / 2000
"""Gaps shorter than this part of a step are closed: a page of thousands of slivers shows no more."""


def of_arm(name: ArmName, arm: ArmRecord) -> Timeline | None:
    """Of the last step of an arm that was run for its numbers."""
    facts = arm.steps.get(arm.last_step)
    spans = facts[0].spans if facts else ()
    return of_spans(name, spans, "the host's clock on rank 0, the probes' own time left out")


def of_spans(name: ArmName, spans: Sequence[tuple[str, float, float]], source: str) -> Timeline | None:
    """Of what a rank noted; `None` where it noted nothing."""
    if not spans:
        return None
    by_kind: dict[str, list[Interval]] = {}
    for kind, begin, end in spans:
        by_kind.setdefault(kind, []).append((begin, end))
    first = min(begin for _, begin, _ in spans)
    last = max(end for _, _, end in spans)
    return Timeline(name, last - first, tuple(_spans(by_kind, first, last - first)), source)


def of_trace(name: ArmName, events: Iterable[dict[str, Any]]) -> Timeline | None:
    """Of the last step in a trace, in which phases are marked; `None` without kernels or marks."""
    phases: list[tuple[str, Interval]] = []
    kernels: list[tuple[str, Interval]] = []
    for event in events:
        if event.get("ph") != "X":
            continue
        at = float(event["ts"]) / 1e6
        interval = at, at + float(event["dur"]) / 1e6
        if event.get("cat") == "user_annotation" and str(event["name"]).startswith(PHASE):
            phases.append((str(event["name"]).removeprefix(PHASE), interval))
        elif event.get("cat") == "kernel" and (kind := kind_of_kernel(str(event["name"]))):
            kernels.append((kind, interval))
    phases = _last_step(sorted(phases, key=lambda one: one[1]))
    if not phases or not kernels:
        return None
    begin = phases[0][1][0]
    inside = [(kind, one) for kind, one in kernels if one[0] >= begin]
    end = max(interval[1] for _, interval in (*phases, *inside))
    by_kind: dict[str, list[Interval]] = {}
    for kind, interval in (*phases, *inside):
        by_kind.setdefault(kind, []).append(interval)
    source = "phases on the host and kernels of the GPU, from the profiler's trace of rank 0"
    return Timeline(name, end - begin, tuple(_spans(by_kind, begin, end - begin)), source)


def _last_step(phases: list[tuple[str, Interval]]) -> list[tuple[str, Interval]]:
    """Phases after the last but one optimizer step."""
    ends = [position for position, (kind, _) in enumerate(phases) if kind == "optimizer"]
    if not ends:
        return []
    return phases[ends[-2] + 1 if len(ends) > 1 else 0 : ends[-1] + 1]


def _spans(
    by_kind: dict[str, list[Interval]], first: float, seconds: float
) -> Iterable[tuple[str, float, float]]:
    for kind in KINDS:
        joined: list[Interval] = []
        for begin, end in merged(by_kind.get(kind, [])):
            if joined and begin - joined[-1][1] < _SHORTEST * seconds:
                joined[-1] = joined[-1][0], end
            else:
                joined.append((begin, end))
        yield from ((kind, begin - first, end - first) for begin, end in joined)
