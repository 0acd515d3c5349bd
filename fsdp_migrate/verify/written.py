"""Reads the files that a job has written into its arm's shadow, as far as they can be compared.

Losses of evaluation are often in no other place: a CSV of a logger, a JSON of results.
"""

from __future__ import annotations

import csv
import itertools
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from fsdp_migrate.verify import event_files

_TEXT = {".json", ".jsonl", ".csv", ".tsv", ".txt", ".log"}
_TEXT_BYTES = 1 << 20
_EVENTS_BYTES = 1 << 24
"""Pictures and histograms stand between the scalars."""
_MOST = 500
_LINES = 2000
_PASSING = re.compile(r"(^|/)(\.|__pycache__|wandb/|mlruns/)|\.(lock|tmp|pyc|partial|own)$|\.log$")
"""What comes and goes, is named by chance, or may not be flushed when a job is stopped."""
_DIGITS = re.compile(r"\d+")

Written = Mapping[str, tuple[str, ...]]
"""Path as the user knows it -> lines; none of files that are neither text nor of TensorBoard."""


def written(shadow: Path, since: float) -> Written:
    """Files below a shadow that were written after a moment, in seconds since the epoch."""
    found: dict[str, tuple[str, ...]] = {}
    for folder, folders, names in os.walk(shadow):
        folders.sort()
        for name in sorted(names):
            path = Path(folder, name)
            if path.is_symlink() or not path.is_file() or path.stat().st_mtime < since:
                continue
            found["/" + path.relative_to(shadow).as_posix()] = tuple(_lines(path))
            if len(found) == _MOST:
                return found
    return found


def _lines(path: Path) -> Iterator[str]:
    if event_files.NAME in path.name:
        with path.open("rb") as stream:
            yield from itertools.islice(event_files.scalar_lines(stream.read(_EVENTS_BYTES)), _LINES)
        return
    if path.suffix not in _TEXT or path.stat().st_size > _TEXT_BYTES:
        return
    with path.open(encoding="utf-8", errors="replace", newline="") as stream:
        if path.suffix in (".csv", ".tsv"):
            yield from _rows(stream.read(), "\t" if path.suffix == ".tsv" else ",")
            return
        for number, line in enumerate(stream):
            if number == _LINES:
                return
            yield line.rstrip("\r\n")


def _rows(text: str, delimiter: str) -> Iterator[str]:
    """Each row with the names of its columns."""
    rows = csv.reader(text.splitlines()[:_LINES], delimiter=delimiter)
    header = next(rows, [])
    for row in rows:
        yield ", ".join(f"{name}: {value}" for name, value in zip(header, row, strict=False))


def counterparts(original: Written, candidate: Written) -> Iterator[tuple[str, str]]:
    """Files of both arms that belong together: by name, or by name but for numbers, such as a time."""
    of_words: dict[str, list[str]] = {}
    for name in candidate:
        if name not in original:
            of_words.setdefault(_DIGITS.sub("#", name), []).append(name)
    for name in original:
        if name in candidate:
            yield name, name
        elif others := of_words.get(_DIGITS.sub("#", name)):
            yield name, others.pop(0)


def gone(original: Written, candidate: Written) -> list[str]:
    """Files that the original writes and the candidate does not."""
    kept = Counter(left for left, _ in counterparts(original, candidate))
    return [name for name in original if name not in kept and not _PASSING.search(name)]
