"""Runs the rewriter on a folder, in this process, and says what it found in one line per finding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Result:
    """What one rewrite of a folder came to; the folder holds the new files."""

    lines: list[str]
    found_at: set[tuple[str, int]]
    wrap_sites: int
    translated: int
    codes: list[str]


def rewrite_in_place(folder: Path, options: Sequence[str] = ()) -> Result:
    raise NotImplementedError
