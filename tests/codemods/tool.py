"""Runs the rewriter on a folder, in this process, and says what it found in one line per finding."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from codemods.model import Options, Outcome, Reported
from codemods.plan import plan_rewrite
from codemods.sources import find_files


@dataclass(frozen=True, slots=True)
class Result:
    """What one rewrite of a folder came to; the folder holds the new files.

    Attributes:
        lines: `path:line:column CODE outcome: message` of the folder as it was, a remedy below it.
        found_at: (path, line) of the findings that a person or nobody has to act on.
        open_codes: codes of what needs a person.
        codes: codes of everything reported.
    """

    lines: list[str] = field(default_factory=list)
    found_at: set[tuple[str, int]] = field(default_factory=set)
    open_codes: list[str] = field(default_factory=list)
    codes: list[str] = field(default_factory=list)
    wrap_sites: int = 0
    translated: int = 0


def rewrite_in_place(folder: Path, options: Sequence[str] = ()) -> Result:
    """Plan a rewrite of a folder and write its changes."""
    files = find_files(folder, [folder])
    rewrite = plan_rewrite(folder, files, options_of(options))
    for change in rewrite.changes:
        (folder / change.path).write_bytes(change.after)
    left = [r for r in rewrite.reported if r.outcome is not Outcome.DONE]
    return Result(
        lines=[line for reported in rewrite.reported for line in _lines(reported)],
        found_at={(r.finding.place.path, r.finding.place.line) for r in left},
        open_codes=[r.finding.code for r in rewrite.open_findings],
        codes=[r.finding.code for r in rewrite.reported],
        wrap_sites=len(rewrite.wrap_sites),
        translated=sum(site.form != "left" for site in rewrite.wrap_sites),
    )


def options_of(given: Sequence[str]) -> Options:
    parser = argparse.ArgumentParser()
    parser.add_argument("--unsafe-fixes", action="store_true")
    parser.add_argument("--drop-fsdp1", action="store_true")
    parser.add_argument("--whole-only", action="store_true")
    parser.add_argument("--target-torch", default="2.6")
    parser.add_argument("--modernize", action="append", default=[])
    told = parser.parse_args(list(given))
    major, minor = told.target_torch.split(".")
    return Options(
        unsafe_fixes=told.unsafe_fixes,
        drop_fsdp1=told.drop_fsdp1,
        whole_only=told.whole_only,
        target_torch=(int(major), int(minor)),
        modernize=tuple(told.modernize),
    )


def _lines(reported: Reported) -> list[str]:
    found = reported.finding
    where = f"{found.place.path}:{found.place.line}:{found.place.column}"
    detail = f" ({reported.detail})" if reported.detail else ""
    lines = [f"{where} {found.code} {reported.outcome.value}: {found.message}{detail}"]
    if found.remedy and reported.outcome is Outcome.TODO:
        lines.append(f"    {found.remedy}")
    return lines
