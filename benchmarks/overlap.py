"""The overlap that `verify --profile` reads out of recorded GPU traces, against Holistic Trace Analysis.

    python benchmarks/overlap.py TRACE.json.gz ...

Needs `HolisticTraceAnalysis` (0.5), in an environment of its own: it brings pandas and plotly. The peer
leaves out kernels that were launched before the first profiled step and rounds times to microseconds, so
the percentage is computed twice: over the file as `verify` reads it, and over the very kernels that the
peer kept. Prints a Markdown table; exit status 1 when the second one is further than 0.01 from the
peer's.
"""

from __future__ import annotations

import argparse
import logging
import math
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from fsdp_migrate.verify.overlap import overlap, read_trace  # noqa: E402

_ROUNDED = 0.01


def peer(trace: Path) -> tuple[float, list[dict[str, Any]]]:
    """The peer's percentage (NaN without communication) and the kernels it is computed over."""
    from hta.trace_analysis import TraceAnalysis

    logging.disable(logging.CRITICAL)
    analysis = TraceAnalysis({0: str(trace)}, str(trace.parent), include_last_profiler_step=True)
    percent = float(analysis.get_comm_comp_overlap(visualize=False)["comp_comm_overlap_pctg"][0])
    names = analysis.t.symbol_table.get_sym_table()
    table = analysis.t.get_trace(0)
    table = table[table.stream.ne(-1)]
    rows = zip(table.name, table.ts, table.dur, strict=True)
    return percent, [{"ph": "X", "cat": "kernel", "name": names[n], "ts": t, "dur": d} for n, t, d in rows]


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("traces", nargs="+", type=Path)
    is_equal = True
    print("| trace | kernels | verify | on the peer's kernels | peer |\n|---|---|---|---|---|")
    for trace in arguments.parse_args().traces:
        expected, kernels = peer(trace)
        whole, same = overlap(read_trace(trace)), overlap(kernels)
        ours = same.percent if same is not None and same.percent is not None else math.nan
        is_equal &= abs(ours - expected) <= _ROUNDED or (math.isnan(ours) and math.isnan(expected))
        told = whole.percent if whole is not None and whole.percent is not None else math.nan
        print(f"| {trace.name} | {len(kernels)} | {told:.2f} | {ours:.2f} | {expected:.2f} |")
    return 0 if is_equal else 1


if __name__ == "__main__":
    sys.exit(main())
