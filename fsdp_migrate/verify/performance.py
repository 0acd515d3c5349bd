"""Speed and memory of both arms from what the performance probe wrote; pure.

MFU is torchtitan's: tokens per second and GPU, times FLOP per token, over the chip's dense bfloat16 peak.
FLOP per token = 6 (N - N_embedding) + 12 x layers x width x sequence; the second term, attention, counts the
whole matrix of scores, and is left out where the model has no configuration that names layers and width.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from fsdp_migrate.verify import timeline
from fsdp_migrate.verify.model import ArmName, ArmPerformance, Timeline
from fsdp_migrate.verify.overlap import overlap, read_trace
from fsdp_migrate.verify.spec import EVENTS, TRACE, TRACED_STEPS

WARM_UP = 2
"""Steps of each run that are not counted."""
PEAK_FLOPS = {
    "H100 NVL": 835e12,
    "H100 PCIe": 756e12,
    "H100": 989e12,
    "H200": 989e12,
    "GH200": 989e12,
    "B200": 2250e12,
    "A100": 312e12,
    "A10G": 70e12,
    "A10": 125e12,
    "A6000": 155e12,
    "L40S": 362e12,
    "L4": 121e12,
    "MI300X": 1307e12,
    "MI250X": 191.5e12,
}
"""Dense bfloat16 FLOP/s from the makers' data sheets; the first name that is part of the chip's is taken."""


Trace = list[dict[str, Any]]
"""Events of a profiler's trace; of a large job hundreds of megabytes, so that it is read once."""


def last_trace(folders: Sequence[Path]) -> Trace | None:
    """What rank 0 wrote in the last of several runs; `None` where it wrote none."""
    path = folders[-1] / "rank0" / TRACE
    return read_trace(path) if path.exists() else None


def measured(name: ArmName, folders: Sequence[Path], trace: Trace | None) -> ArmPerformance:
    """Figures of one arm from all its runs.

    Args:
        folders: each with `rank0`, `rank1` ... of one run.
        trace: of the last run.
    """
    runs = [_ranks(folder) for folder in folders]
    steps = [one for ranks in runs for one in _slowest(ranks)]
    model = next((e for ranks in runs for e in ranks[0] if e["event"] == "performance_model"), {})
    seconds = [one["seconds"] for one in steps]
    median = statistics.median(seconds) if seconds else None
    tokens = statistics.median([one["tokens"] for one in steps]) if steps else 0
    per_second = tokens / median if median and tokens else None
    flop = flop_per_token(model, steps)
    overlaps = None if trace is None else overlap(trace)
    peak = peak_flops(str(model.get("chip", "")))
    last = steps[-1] if steps else {"collectives": {}, "bytes": {}}
    return ArmPerformance(
        name=name,
        steps=len(steps),
        step_seconds=median,
        spread_seconds=_spread(seconds),
        tokens_per_second=per_second,
        memory=_memory(event for ranks in runs for rank in ranks for event in rank),
        collectives=tuple(sorted((k, v, last["bytes"].get(k, 0)) for k, v in last["collectives"].items())),
        overlap_percent=overlaps.percent if overlaps else None,
        exposed_seconds=overlaps.exposed / TRACED_STEPS if overlaps else None,
        chip=str(model.get("chip", "")),
        flop_per_token=flop,
        mfu_percent=100 * per_second * flop / peak if per_second and flop and peak else None,
    )


def notes_of(folder: Path) -> list[str]:
    """What rank 0 of one run said of itself."""
    ranks = _ranks(folder)
    return [str(one["text"]) for one in (ranks[0] if ranks else []) if one["event"] == "not_observed"]


def timeline_of(name: ArmName, folder: Path, trace: Trace | None) -> Timeline | None:
    """Of one run: from its trace where a GPU was used, else of the last step that was not traced."""
    found = None if trace is None else timeline.of_trace(name, trace)
    if found is not None:
        return found
    ranks = _ranks(folder)
    steps = [one for one in (ranks[0] if ranks else []) if one["event"] == "performance"]
    plain = [one for one in steps if not one["traced"]]
    spans = [(kind, begin, end) for kind, begin, end in plain[-1].get("spans", ())] if plain else []
    return timeline.of_spans(name, spans, "the host's clock on rank 0")


def peak_flops(chip: str) -> float | None:
    """Dense bfloat16 peak of a chip by its name; `None` where the table does not have it."""
    return next((peak for name, peak in PEAK_FLOPS.items() if _named(name, chip)), None)


def _named(name: str, chip: str) -> bool:
    words = chip.replace("-", " ").split()
    return all(word in words for word in name.split())


def flop_per_token(model: dict[str, Any], steps: list[dict[str, Any]]) -> float | None:
    """Forward and backward, of the whole model; `None` where no model was seen."""
    if not model:
        return None
    sequence = next((one["sequence"] for one in steps if one.get("sequence")), 0)
    attention = 12 * model["layers"] * model["width"] * sequence
    return float(6 * (model["numel"] - model["embedding"]) + attention)


def _ranks(folder: Path) -> list[list[dict[str, Any]]]:
    ranks = sorted(folder.glob("rank*"), key=lambda path: int(path.name[4:]))
    return [
        [json.loads(line) for line in (each / EVENTS).read_text(encoding="utf-8").splitlines()]
        for each in ranks
    ]


def _slowest(ranks: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Counted steps of one run as rank 0 saw them, each as long as the slowest rank took."""
    of_ranks = [[e for e in rank if e["event"] == "performance"] for rank in ranks]
    found = []
    for position, step in enumerate(of_ranks[0] if of_ranks else []):
        times = [rank[position]["seconds"] for rank in of_ranks if position < len(rank)]
        if position >= WARM_UP and None not in times and not step["traced"]:
            found.append({**step, "seconds": max(times)})
    return found


def _spread(seconds: list[float]) -> float | None:
    """Distance of the quartiles."""
    if len(seconds) < 4:
        return max(seconds) - min(seconds) if len(seconds) > 1 else None
    low, _, high = statistics.quantiles(seconds, n=4)
    return high - low


def _memory(events: Iterable[dict[str, Any]]) -> tuple[tuple[str, int, int], ...]:
    """(phase, peak allocated, peak reserved), the largest of all ranks and steps after the first."""
    peaks: dict[str, tuple[int, int]] = {}
    for event in events:
        if event["event"] == "performance" and event["step"] > 1:
            for phase, found in event["memory"].items():
                known = peaks.get(phase, (0, 0))
                peaks[phase] = max(known[0], found["allocated"]), max(known[1], found["reserved"])
    return tuple((phase, *peak) for phase, peak in peaks.items())
