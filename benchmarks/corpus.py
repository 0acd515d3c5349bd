"""Rewrites checkouts of public repositories and holds the results against the laws of the case tests.

    python benchmarks/corpus.py FOLDER [NAME ...] [--output DIR] [--keep DIR] [--jobs N]

FOLDER holds one checkout per sub-folder, named as in `corpus.json` beside this file, which says where each
comes from and how hard it is; a folder of another name is measured too. Each is copied, rewritten by the
program itself, rewritten again and put back. The laws:

- no crash; the result parses; no name is undefined and no import unused that was not before (ruff's F rules);
- no comment is lost;
- a second run changes nothing and reports the same open findings;
- `--undo` gives back every byte;
- every FSDP1 name, wrap call and state-dict context that is left stands in the report (an independent scan);
- of the wrap sites outside repositories marked refuse-mostly 90 % are translated by default.

Prints a Markdown table and, below it, what broke a law; `--output` also writes corpus.md and corpus.json.
Exit status 1 when a law is broken.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "codemods")]

import corpus_laws  # noqa: E402
from corpus_laws import Row  # noqa: E402

KNOWN: dict[str, dict[str, str]] = json.loads(Path(__file__).with_suffix(".json").read_text())
ORDER = ("easy", "typical", "hard", "refuse-mostly", "unknown")
LEAST_TRANSLATED = 0.9
FIELDS = [field.name for field in dataclasses.fields(Row)]
HEADINGS = (
    "repository",
    "difficulty",
    "files",
    "wrap sites",
    "inline / helper / left",
    "state-dict contexts: translated / refused with a reason / neither",
    "to do",
    "findings by code",
    "laws",
    "CPU s",
    "peak MB",
)


def cells(row: Row) -> list[str]:
    """One line of the table."""
    codes = " ".join(f"{code}:{counts.total()}" for code, counts in sorted(row.codes.items()))
    return [
        row.name,
        row.difficulty,
        str(row.files),
        str(row.sites),
        " / ".join(str(row.forms[form]) for form in ("inline", "helper", "left")),
        f"{row.contexts_translated} / {row.contexts_left} / {row.contexts_silent}",
        str(row.todo),
        codes or "-",
        f"{len(row.broken)} broken" if row.broken else "hold",
        f"{row.cpu_s:.1f}",
        f"{row.peak_bytes / 1e6:.0f}",
    ]


def total(rows: list[Row]) -> Row:
    """The line below the table."""
    whole = Row(f"all {len(rows)}", "")
    for row in rows:
        whole.files += row.files
        whole.forms += row.forms
        whole.contexts += row.contexts
        whole.contexts_left += row.contexts_left
        whole.contexts_silent += row.contexts_silent
        whole.cpu_s += row.cpu_s
        whole.peak_bytes = max(whole.peak_bytes, row.peak_bytes)
        whole.broken += row.broken
        for code, counts in row.codes.items():
            whole.codes.setdefault(code, Counter()).update(counts)
    return whole


def shares(rows: list[Row]) -> list[str]:
    """Per difficulty, how many wrap sites are translated."""
    lines = []
    for difficulty in ORDER:
        chosen = [row for row in rows if row.difficulty == difficulty]
        if chosen:
            done, sites = sum(row.translated for row in chosen), sum(row.sites for row in chosen)
            lines.append(
                f"- {difficulty}: {len(chosen)} repositories, {done} of {sites} wrap sites translated"
            )
    return lines


def too_few(rows: list[Row]) -> str | None:
    """What is said when fewer wrap sites are translated than the law asks for."""
    asked = [row for row in rows if row.difficulty != "refuse-mostly"]
    done, sites = sum(row.translated for row in asked), sum(row.sites for row in asked)
    if done >= LEAST_TRANSLATED * sites:
        return None
    return f"only {done} of {sites} wrap sites outside refuse-mostly repositories are translated"


def markdown(rows: list[Row], broken: list[str]) -> str:
    """Table, shares and broken laws."""
    table = [HEADINGS, ("---",) * len(HEADINGS), *map(cells, [*rows, total(rows)])]
    lines = ["| " + " | ".join(line) + " |" for line in table]
    return "\n".join([*lines, "", *shares(rows), *(["", *broken] if broken else [])]) + "\n"


def as_json(rows: list[Row], broken: list[str]) -> str:
    """Everything measured."""
    described = [
        {**KNOWN.get(row.name, {}), **{name: getattr(row, name) for name in FIELDS}, "wrap_sites": row.sites}
        for row in rows
    ]
    return json.dumps({"repositories": described, "broken": broken}, indent=1) + "\n"


def main() -> int:
    """Measure; 1 when a law is broken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--output", type=Path, help="write corpus.md and corpus.json into this folder")
    parser.add_argument("--keep", type=Path, help="keep the rewritten copies in this folder")
    parser.add_argument("--jobs", type=int, default=1, help="repositories at a time")
    told = parser.parse_args()
    checkouts = [
        path
        for path in told.folder.iterdir()
        if path.is_dir() and (not told.names or path.name in told.names)
    ]
    difficulty = {path.name: KNOWN.get(path.name, {}).get("difficulty", "unknown") for path in checkouts}

    def measured(checkout: Path) -> Row:
        with tempfile.TemporaryDirectory() as scratch:
            row = corpus_laws.check(checkout, difficulty[checkout.name], Path(scratch), told.keep)
        said = "".join(f"\n  {line}" for line in row.broken)
        print(f"{row.name}: {len(row.broken)} broken, {row.cpu_s:.1f} s{said}", file=sys.stderr, flush=True)
        return row

    checkouts.sort(key=lambda path: (ORDER.index(difficulty[path.name]), path.name.lower()))
    with ThreadPoolExecutor(told.jobs) as pool:
        rows = list(pool.map(measured, checkouts))
    broken = [f"{row.name}: {line}" for row in rows for line in row.broken]
    broken += filter(None, [too_few(rows)])
    print(markdown(rows, broken), end="")
    if told.output is not None:
        told.output.mkdir(parents=True, exist_ok=True)
        (told.output / "corpus.md").write_text(markdown(rows, broken))
        (told.output / "corpus.json").write_text(as_json(rows, broken))
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
