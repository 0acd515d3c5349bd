"""Random training programs, rewritten and run as FSDP1 and as FSDP2: what differs is a fault.

    python benchmarks/fuzz_programs.py --count 200 [--seed 0] [--keep DIR]

Each program takes one way for each thing that trainers do (`random_programs`): imports, how settings get to
the wrap, policy, strategy, precision, optimizer, accumulation, clipping, averages, evaluation, saving and
loading. It is rewritten, rewritten once more, and where nothing is left to a person both versions run on two
gloo ranks in one process group. Losses, norms, weights, gradients and saved files are compared, bit for bit
where the two do the same arithmetic. Prints each fault with the ways that led to it; leaves with 1 if there
is one. A program takes about a second of two cores.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "codemods")]

import parity  # noqa: E402
import tool  # noqa: E402
from random_programs import Program, programs  # noqa: E402

_TIMEOUT_S = 1800
_LONGEST = 900


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=100, help="how many programs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="keep the programs in this new folder")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        faults = check(programs(given.count, given.seed), given.keep or Path(scratch) / "programs")
    print("\n".join(faults) or "no fault")
    return bool(faults)


def check(drawn: list[Program], folder: Path) -> list[str]:
    """Rewrite the programs, run what is wholly translated, and say what is wrong."""
    jobs: list[parity.Job] = []
    left: Counter[str] = Counter()
    faults: list[str] = []
    for number, program in enumerate(drawn):
        home = folder / str(number)
        said = rewritten(program, home)
        if isinstance(said, str):
            faults.append(_fault(number, program, said))
        elif said:
            left.update(said)
        else:
            jobs.append(parity.Job(str(number), home / "before", home / "after", {}, program.rtol))
    print(f"{len(drawn)} programs, {len(jobs)} wholly translated; left to a person: {dict(left)}", flush=True)
    for job, verdict in parity.run_jobs(jobs, folder / "runs", _TIMEOUT_S).items():
        wrong = verdict.errors[0][-_LONGEST:] if verdict.errors else "\n".join(verdict.differences[:4])
        if wrong:
            faults.append(_fault(int(job), drawn[int(job)], wrong))
    return faults


def rewritten(program: Program, home: Path) -> set[str] | str:
    """The codes of what is left to a person in a program that is rewritten twice, or what went wrong."""
    for name, text in program.files().items():
        for arm in ("before", "after"):
            (home / arm).mkdir(parents=True, exist_ok=True)
            (home / arm / name).write_text(text, encoding="utf-8")
    try:
        said = tool.rewrite_in_place(home / "after")
        shutil.copytree(home / "after", home / "again")
        tool.rewrite_in_place(home / "again")
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    (home / "findings.txt").write_text("\n".join(said.lines), encoding="utf-8")
    for path in sorted((home / "after").iterdir()):
        if path.read_bytes() != (home / "again" / path.name).read_bytes():
            return f"rewriting again changes {path.name}"
    return set(said.open_codes)


def _fault(number: int, program: Program, wrong: str) -> str:
    return f"{number}: {wrong}\n    { ({thing: way for thing, way in program.chosen.items() if way}) }"


if __name__ == "__main__":
    sys.exit(main())
