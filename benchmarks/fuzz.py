"""Mutates the FSDP files of checkouts and rewrites each: no crash, no result that does not parse.

    python benchmarks/fuzz.py FOLDER [--files 20000] [--seed 0] [--seconds 20] [--jobs 1]

Takes every file under FOLDER that names FSDP (Python, notebooks, configuration, scripts), and rewrites
mutated copies of them, one at a time, in memory. Prints what failed, the seed that makes it again, and a
summary; exit status 1 where something failed.
"""

from __future__ import annotations

import argparse
import ast
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "codemods")]

import mutations  # noqa: E402

from codemods.model import Options  # noqa: E402
from codemods.plan import plan_rewrite  # noqa: E402
from codemods.sources import find_files, names_fsdp  # noqa: E402

LONGEST = 100_000
"""Bytes; longer files take longer without being any different."""


@dataclass(slots=True)
class Tally:
    """What came of a stretch of seeds."""

    counts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    slowest: float = 0.0


class TooSlow(Exception):
    """One file took longer than it may."""


def _alarm(number: int, frame: FrameType | None) -> None:
    raise TooSlow


def sources(folder: Path) -> list[Path]:
    """The files worth mutating."""
    found = []
    for checkout in sorted(p for p in folder.iterdir() if p.is_dir()):
        paths = [checkout / name for name in find_files(checkout, [checkout])]
        found += [p for p in paths if p.stat().st_size <= LONGEST and names_fsdp(p.read_bytes())]
    return found


def one(seed: int, paths: list[Path], limit_s: int) -> tuple[str, str]:
    """Rewrite one mutated file.

    Returns:
        What came of it (`rewritten`, `left`, `not parsed`, or a failure), and the failure's text.
    """
    chance = random.Random(seed)
    source = chance.choice(paths)
    others = [chance.choice(paths).read_text(errors="replace") for _ in range(2)]
    data = mutations.mutated(source.read_bytes(), chance, others)
    options = Options(unsafe_fixes=chance.random() < 0.5, drop_fsdp1=chance.random() < 0.3)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / source.name).write_bytes(data)
        signal.setitimer(signal.ITIMER_PROF, limit_s)
        try:
            done = plan_rewrite(folder, [source.name], options)
            for change in done.changes:
                if change.path.endswith(".py"):
                    ast.parse(change.after, change.path)
        except TooSlow:
            return "too slow", str(source)
        except Exception:
            return "crashed", f"{source}\n{traceback.format_exc(limit=-4)}"
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
    broken = [r.finding.message for r in done.reported if r.finding.code == "FM903"]
    if broken and not mutations.compiles(data):
        return "not compiled", ""  # Python parses it and still refuses it; left alone, and said
    if broken:
        return "net needed", f"{source}: {broken[0]}"
    if done.skipped:
        return "not parsed", ""
    return ("rewritten" if done.changes else "left"), ""


def stretch(seeds: range, paths: list[Path], limit_s: int) -> Tally:
    """Rewrite the mutated files of some seeds."""
    signal.signal(signal.SIGPROF, _alarm)
    tally = Tally()
    for seed in seeds:
        started = time.process_time()
        what, why = one(seed, paths, limit_s)
        tally.counts[what] += 1
        tally.slowest = max(tally.slowest, time.process_time() - started)
        if why:
            tally.failures.append(f"seed {seed}: {what}: {why}")
    return tally


def main() -> int:
    """Run; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--seconds", type=int, default=20, help="of CPU that one file may take")
    parser.add_argument("--jobs", type=int, default=1)
    told = parser.parse_args()
    paths = sources(told.folder)
    step = 100
    seeds = [
        range(start, min(start + step, told.seed + told.files))
        for start in range(told.seed, told.seed + told.files, step)
    ]
    total, started = Tally(), time.monotonic()
    print(f"{len(paths)} files to mutate", flush=True)
    with ProcessPoolExecutor(told.jobs) as pool:
        for tally in pool.map(partial(stretch, paths=paths, limit_s=told.seconds), seeds):
            total.counts += tally.counts
            total.slowest = max(total.slowest, tally.slowest)
            for failure in tally.failures:
                print(failure, flush=True)
            total.failures += tally.failures
    counts = ", ".join(f"{number} {what}" for what, number in sorted(total.counts.items()))
    print(
        f"{sum(total.counts.values())} mutated files: {counts}; {len(total.failures)} failures; "
        f"slowest {total.slowest:.1f} s; {time.monotonic() - started:.0f} s in all"
    )
    return 1 if total.failures else 0


if __name__ == "__main__":
    sys.exit(main())
