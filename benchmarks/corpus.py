"""Rewrites checkouts of public repositories and holds the results against the laws of the case tests.

    python benchmarks/corpus.py FOLDER [NAME ...]

FOLDER holds one checkout per sub-folder; each is copied before it is rewritten. Prints a Markdown table
and, below it, what broke a law. Exit status 1 when a law is broken.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "codemods")]

import laws  # noqa: E402
import tool  # noqa: E402


@dataclass(slots=True)
class Row:
    """One repository's line of the table."""

    name: str
    files: int = 0
    wraps: int = 0
    translated: int = 0
    open: int = 0
    codes: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    broken: list[str] = field(default_factory=list)

    HEADINGS = (
        "repository",
        "files",
        "wrap sites",
        "translated",
        "left to a person",
        "findings by code",
        "laws",
        "seconds",
    )

    def cells(self) -> list[str]:
        codes = " ".join(f"{code}:{count}" for code, count in sorted(self.codes.items()))
        verdict = "hold" if not self.broken else f"{len(self.broken)} broken"
        counts = [str(number) for number in (self.files, self.wraps, self.translated, self.open)]
        return [self.name, *counts, codes or "-", verdict, f"{self.seconds:.1f}"]


def check(checkout: Path, scratch: Path) -> Row:
    """Rewrite a copy of `checkout` twice and compare."""
    row = Row(checkout.name)
    before, after, twice = scratch / "before", scratch / "after", scratch / "twice"
    shutil.copytree(checkout, before, symlinks=True, ignore=shutil.ignore_patterns(".git", ".fsdp-migrate"))
    shutil.copytree(before, after, symlinks=True)
    row.files = len(laws.python_files(before))
    started = time.perf_counter()
    try:
        first = tool.rewrite_in_place(after)
        row.seconds = time.perf_counter() - started
        shutil.copytree(after, twice, symlinks=True)
        again = tool.rewrite_in_place(twice)
    except Exception:
        row.broken.append("crash: " + traceback.format_exc())
        return row
    row.open = len(first.open_codes)
    row.wraps, row.translated, row.codes = first.wrap_sites, first.translated, Counter(first.codes)
    row.broken += [
        f"no longer parses: {name}" for name in laws.parse_errors(after) - laws.parse_errors(before)
    ]
    row.broken += [
        f"introduced {code} in {path}: {message}"
        for path, code, message in laws.introduced(laws.ruff_findings(before), laws.ruff_findings(after))
    ]
    row.broken += [f"comment lost: {comment}" for comment in laws.lost_comments(before, after)]
    written, rewritten = laws.contents(after), laws.contents(twice)
    row.broken += [f"second run changes {n}" for n in rewritten if rewritten[n] != written.get(n)]
    row.broken += [
        f"leftover without finding: {left.path}:{left.line} {left.name}"
        for left in laws.silent_leftovers(after, again.found_at)
    ]
    return row


def main(folder: Path, names: list[str]) -> int:
    checkouts = sorted(
        path for path in folder.iterdir() if path.is_dir() and (not names or path.name in names)
    )
    rows = []
    for checkout in checkouts:
        with tempfile.TemporaryDirectory() as scratch:
            rows.append(check(checkout, Path(scratch)))
        print(f"{checkout.name}: done", file=sys.stderr)
    print("| " + " | ".join(Row.HEADINGS) + " |")
    print("|" + " --- |" * len(Row.HEADINGS))
    for row in rows:
        print("| " + " | ".join(row.cells()) + " |")
    for row in rows:
        for line in row.broken:
            print(f"\n{row.name}: {line}", end="")
    print()
    return int(any(row.broken for row in rows))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
