"""How far the verdicts of `verify` can be trusted: planted mistakes found, and right conversions repeated.

    python benchmarks/parity_suite.py [--repetitions 5] [--mutations] [--output FILE]

Every right conversion of `tests/verify/parity_zoo.py` is run that many times, the original anew each time; a
verdict that is not a pass without a warning is a false alarm. With `--mutations` every planted mistake is run
once. A table goes to stdout, JSON to FILE.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "verify")]

from bench import Benches  # noqa: E402
from parity_zoo import MUTATIONS, RIGHT, found  # noqa: E402


def false_alarms(zoo: Benches, repetitions: int) -> list[dict[str, object]]:
    """Run every right conversion; the alarms."""
    alarms: list[dict[str, object]] = []
    for number in range(1, repetitions + 1):
        began = time.monotonic()
        for right in RIGHT:
            report = zoo.verdict(right.options, right.ranks)
            if not report.passed or report.warnings or (right.exact and report.largest):
                said = [*report.warnings, *(cause.text for cause in report.causes), str(report.first)]
                alarms.append(
                    {"repetition": number, "ranks": right.ranks, "options": right.options, "said": said}
                )
        zoo.forget()
        seconds = time.monotonic() - began
        print(f"repetition {number}: {len(RIGHT)} conversions, {len(alarms)} false alarms, {seconds:.0f} s")
        sys.stdout.flush()
    return alarms


def missed(zoo: Benches) -> list[dict[str, object]]:
    """Run every mutation; those that were not found, or not for their cause."""
    wrong: list[dict[str, object]] = []
    for mutation in MUTATIONS:
        result = found(zoo, mutation)
        named = result.code == mutation.code and mutation.words in result.words
        if result.how == "passes" or not named:
            row = {"mistake": mutation.mistake, "options": mutation.options}
            wrong.append({**row, "found": result.how != "passes", "said": result.words})
    return wrong


def main() -> int:
    """Run, print, write; 1 where anything was missed or raised for nothing."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--mutations", action="store_true")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    result: dict[str, object] = {"right conversions": len(RIGHT), "repetitions": options.repetitions}
    with tempfile.TemporaryDirectory() as folder:
        zoo = Benches(Path(folder))
        if options.mutations:
            wrong = missed(zoo)
            undetected = sum(not one["found"] for one in wrong)
            result |= {"mutations": len(MUTATIONS), "undetected": undetected, "wrong cause": wrong}
            print(
                f"mutations: {len(MUTATIONS) - undetected} of {len(MUTATIONS)} detected, "
                f"{len(MUTATIONS) - len(wrong)} with the right cause"
            )
        alarms = false_alarms(zoo, options.repetitions)
        result["false alarms"] = alarms
    if options.output is not None:
        options.output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(f"false alarms: {len(alarms)} of {len(RIGHT) * options.repetitions}")
    return 1 if alarms or result.get("wrong cause") else 0


if __name__ == "__main__":
    sys.exit(main())
