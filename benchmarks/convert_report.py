"""What `convert.py` measured, as tables: every contender beside a copy, every peer beside the tool."""

from __future__ import annotations

import statistics
from dataclasses import dataclass


@dataclass
class Run:
    """One run of one contender."""

    wall_s: float
    cpu_s: float
    rss_mib: float


@dataclass(frozen=True)
class Contender:
    """A command line, which writes `out` in the folder.

    Attributes:
        reads: what it reads, below the folder; a copy of as many bytes is its yardstick.
        limit: times the copy that it may take; None where there is none.
        is_slow: runs once.
    """

    command: list[str]
    reads: str = "full.pt"
    limit: float | None = None
    is_slow: bool = False


FASTER, LEANER = 5, 20
"""Times that the tool should be faster and leaner than each peer."""

PAIRS = (
    ("torch_save_to_dcp", "full -> dcp, 2 jobs"),
    ("dcp_to_torch_save", "dcp -> torch, 2 jobs"),
    ("accelerate merge-weights", "dcp -> safetensors, model, 2 jobs"),
    ("DeepSpeed zero_to_fp32", "rank files -> safetensors, model, 2 jobs"),
    ("verl model_merger", "verl's files -> safetensors, bf16, 2 jobs"),
)
"""A peer, and the tool at the same work: without a read-back, which no peer has, and with it; not flushed."""


def show(results: dict[str, list[Run]], chosen: dict[str, Contender], sizes: dict[str, int]) -> None:
    """A table of medians; ratios are taken within each round."""
    print(f"{'':<54}{'wall s':>8}{'x copy':>8}{'limit':>7}{'CPU s':>8}{'x copy':>8}{'MiB':>8}")
    for name, runs in results.items():
        copy = _yardstick(name, chosen[name])
        copies = results[copy]
        share = sizes[chosen[name].reads] / sizes[chosen[copy].reads]
        ratio = statistics.median(
            run.wall_s / copy.wall_s / share for run, copy in zip(runs, copies, strict=False)
        )
        limit = chosen[name].limit
        processor = min(run.cpu_s for run in runs) / min(run.cpu_s for run in copies) / share
        verdict = "" if limit is None else f"{limit}{' ' if ratio <= limit else '!'}"
        wall = statistics.median(run.wall_s for run in runs)
        cpu = statistics.median(run.cpu_s for run in runs)
        rss = max(run.rss_mib for run in runs)
        print(f"{name:<54}{wall:>8.2f}{ratio:>8.2f}{verdict:>7}{cpu:>8.2f}{processor:>8.2f}{rss:>8.0f}")


def _yardstick(name: str, one: Contender) -> str:
    """The copy that a contender's time is held against."""
    if "->" in name and "no flush" not in name:
        return "cp, flushed"
    return "cp of rank files" if one.reads == "ranks" else "cp"


def show_peers(results: dict[str, list[Run]]) -> None:
    """How much slower and larger each peer is than the tool at the same work."""
    for peer, work in PAIRS:
        for ours in (f"{work}, no check, no flush", f"{work}, no flush"):
            if peer in results and ours in results:
                slower = _median_wall(results[peer]) / _median_wall(results[ours])
                larger = max(run.rss_mib for run in results[peer]) / max(run.rss_mib for run in results[ours])
                print(
                    f"{peer} takes {slower:.1f} times as long as {ours!r} (at least {FASTER}) "
                    f"and {larger:.0f} times the memory (at least {LEANER})"
                )


def _median_wall(runs: list[Run]) -> float:
    return statistics.median(run.wall_s for run in runs)
