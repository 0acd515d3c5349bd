"""What it costs to start the ranks of a verification: against bare torchrun with the same imports.

    python benchmarks/launch_cost.py [--ranks 8] [--rounds 3] [--output FILE]

Both start the same program on every rank: it imports what `verify` imports, makes a gloo process group, waits
for the others once and leaves. Wall seconds from command to exit, and processor seconds of all processes, in
alternating runs, medians. Prints a Markdown table; exit status 1 when the launch takes more than half of
torchrun's wall time.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from costs import Cost, cost  # noqa: E402

from fsdp_migrate.demo.ranks import RankForker, RankJob  # noqa: E402

LIMIT = 0.5
_RUN_S = 120.0


def rank_program() -> None:
    """What every rank does."""
    import os

    import torch.distributed as dist

    import fsdp_migrate.verify.worker  # noqa: F401

    dist.init_process_group("gloo")
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)  # an orderly exit of gloo aborts now and then


def forked(ranks: int) -> None:
    """The launch as `verify` makes it.

    Raises:
        JobError: a rank failed or did not end. (Status 1 without a traceback is a result to `cost`.)
    """
    me = str(Path(__file__).resolve())
    with (
        tempfile.TemporaryDirectory(prefix="launch-cost-") as folder,
        RankForker((), nproc=ranks, environment={}) as forker,
    ):
        forker.run(RankJob(me, ("--rank",), ranks, Path(folder), Path(folder), _RUN_S))


def measure(ranks: int, rounds: int) -> dict[str, Any]:
    """Medians of both."""
    me = str(Path(__file__).resolve())
    torchrun = [
        *(sys.executable, "-m", "torch.distributed.run"),
        "--nproc-per-node",
        str(ranks),
        me,
        "--rank",
    ]
    ours = [sys.executable, me, "--forked", str(ranks)]
    runs: dict[str, list[Cost]] = {"torchrun": [], "verify": []}
    for number in range(rounds):
        pair = [("torchrun", torchrun), ("verify", ours)]
        for name, command in pair if number % 2 == 0 else reversed(pair):
            runs[name].append(cost(command, ROOT))
    return {
        name: {
            "wall_s": statistics.median(each.wall_s for each in costs),
            "cpu_s": statistics.median(each.cpu_s for each in costs),
        }
        for name, costs in runs.items()
    }


def main() -> int:
    """Measure, print the table, judge."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path, help="write the figures here as JSON")
    given = parser.parse_args()
    found = measure(given.ranks, given.rounds)
    ratio = found["verify"]["wall_s"] / found["torchrun"]["wall_s"]
    print(f"| {given.ranks} ranks | wall | processor |\n|---|---|---|")
    for name, row in found.items():
        print(f"| {name} | {row['wall_s']:.1f} s | {row['cpu_s']:.1f} s |")
    print(f"\nverify / torchrun: {ratio:.2f} of the wall time (at most {LIMIT})")
    if given.output is not None:
        given.output.write_text(json.dumps({"ranks": given.ranks, "ratio": ratio, **found}, indent=1))
    return int(ratio > LIMIT)


if __name__ == "__main__":
    if sys.argv[1:] == ["--rank"]:
        rank_program()
    elif sys.argv[1:2] == ["--forked"]:
        forked(int(sys.argv[2]))
    else:
        sys.exit(main())
