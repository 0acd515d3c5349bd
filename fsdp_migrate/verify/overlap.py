"""Communication and computation in a profiler trace: how long each runs, and how much runs at once; pure.

Definition (that of Holistic Trace Analysis): kernels of one GPU are put on one time axis; communication is
the union of the intervals of communication kernels (NCCL, RCCL), computation the union of all others but
copies and fills. Overlap is the time in both over the time in communication; exposed communication is the
time in communication alone. CPU operations are not kernels and are not counted.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Interval = tuple[float, float]
_COMMUNICATION = ("nccl", "rccl", "msccl")
_NEITHER = ("memcpy", "memset")


@dataclass(frozen=True, slots=True)
class Overlap:
    """Times in seconds, over all traced steps.

    Attributes:
        exposed: in which communication runs and no computation.
        span: from the first kernel to the end of the last.
    """

    communication: float
    computation: float
    exposed: float
    span: float

    @property
    def percent(self) -> float | None:
        """Part of communication that computation hides; `None` without communication."""
        return 100 * (1 - self.exposed / self.communication) if self.communication else None


def read_trace(path: Path) -> list[dict[str, Any]]:
    """Events of a Chrome trace, gzipped or not."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as stream:
        found: list[dict[str, Any]] = json.load(stream)["traceEvents"]
    return found


def overlap(events: Iterable[dict[str, Any]]) -> Overlap | None:
    """Measure a trace; `None` where it holds no GPU kernel.

    Args:
        events: `traceEvents`; complete events ("ph": "X") with "ts" and "dur" in microseconds.
    """
    communication: list[Interval] = []
    computation: list[Interval] = []
    for event in events:
        if event.get("ph") != "X" or event.get("cat") != "kernel":
            continue
        kind = kind_of_kernel(str(event["name"]))
        if not kind:
            continue
        kernels = communication if kind == "communication" else computation
        kernels.append((float(event["ts"]), float(event["ts"]) + float(event["dur"])))
    if not communication and not computation:
        return None
    talking, working = merged(communication), merged(computation)
    both = shared(talking, working)
    every = talking + working
    return Overlap(
        _length(talking) / 1e6,
        _length(working) / 1e6,
        (_length(talking) - both) / 1e6,
        (max(end for _, end in every) - min(begin for begin, _ in every)) / 1e6,
    )


def kind_of_kernel(name: str) -> str:
    """ "communication", "computation", or "" for copies and fills."""
    name = name.lower()
    if any(word in name for word in _NEITHER):
        return ""
    return "communication" if any(word in name for word in _COMMUNICATION) else "computation"


def merged(intervals: Sequence[Interval]) -> list[Interval]:
    """The union, as intervals that do not touch, in order."""
    found: list[Interval] = []
    for begin, end in sorted(intervals):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return found


def shared(left: Sequence[Interval], right: Sequence[Interval]) -> float:
    """Length of the intersection of two unions, as `merged` gives them."""
    total, i, j = 0.0, 0, 0
    while i < len(left) and j < len(right):
        total += max(0.0, min(left[i][1], right[j][1]) - max(left[i][0], right[j][0]))
        if left[i][1] < right[j][1]:
            i += 1
        else:
            j += 1
    return total


def _length(intervals: Sequence[Interval]) -> float:
    return sum(end - begin for begin, end in intervals)
