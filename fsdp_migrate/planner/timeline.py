"""From allocations in their order to the peak and what it consists of; pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fsdp_migrate.planner.model import Category, Peak, Phase


@dataclass(frozen=True, slots=True)
class Event:
    """A storage that grew (or was made) or shrank (or was freed) by `delta` bytes."""

    serial: int
    delta: int
    phase: Phase
    unit: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """One step.

    Attributes:
        before: bytes of each storage that was alive when the step began, by serial number.
        events: in their order.
        roles: of the storages whose use is known; others are told by when they were made and freed.
    """

    before: Mapping[int, int]
    events: Sequence[Event]
    roles: Mapping[int, Category]


@dataclass(frozen=True, slots=True)
class StepMemory:
    """What a step comes to.

    Attributes:
        most: largest size of each category by itself, at whatever moment.
        activations: what of the forward pass was alive when it ended.
    """

    peak: Peak
    most: Mapping[Category, int]
    activations: int


def summarise(timeline: Timeline) -> StepMemory:
    """Replay a step, every storage under its final category."""
    categories = _categories(timeline)
    parts: Counter[Category] = Counter()
    for serial, size in timeline.before.items():
        parts[categories[serial]] += size
    now = sum(parts.values())
    most = Counter(parts)
    peak = Peak(now, Phase.FORWARD, "", dict(parts))
    for event in timeline.events:
        category = categories[event.serial]
        parts[category] += event.delta
        now += event.delta
        most[category] = max(most[category], parts[category])
        if now > peak.size_bytes:
            peak = Peak(now, event.phase, event.unit, dict(parts))
    kept = {category: size for category, size in peak.parts.items() if size}
    ordered = {category: kept[category] for category in Category if category in kept}
    peak = Peak(peak.size_bytes, peak.phase, peak.unit, ordered)
    return StepMemory(peak, most, most[Category.ACTIVATIONS])


def _categories(timeline: Timeline) -> dict[int, Category]:
    """What is made in the forward pass and alive at its end is an activation; what has no role, temporary."""
    alive: Counter[int] = Counter()
    made_before = set(timeline.before)
    for event in timeline.events:
        if event.phase is not Phase.FORWARD:
            break
        alive[event.serial] += event.delta
    everything = made_before | {event.serial for event in timeline.events}
    found = {}
    for serial in everything:
        role = timeline.roles.get(serial)
        is_kept = serial not in made_before and alive[serial] > 0
        found[serial] = role or (Category.ACTIVATIONS if is_kept else Category.TEMPORARY)
    return found
