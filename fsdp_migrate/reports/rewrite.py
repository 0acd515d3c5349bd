"""The report of `rewrite`: for a terminal, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

from codemods.model import Outcome, Reported, Rewrite
from codemods.record import finding_record

if TYPE_CHECKING:
    from rich.console import Console

_FORMS = {"inline": "written out", "helper": "through the helper module", "left": "left to a person"}


def as_json(rewrite: Rewrite, *, written: bool) -> str:
    """The whole report as one JSON object.

    Args:
        written: whether the changes were written to disk.
    """
    report = {
        "version": 1,
        "searched": rewrite.searched,
        "read": rewrite.read,
        "configurations": {"searched": rewrite.configs[0], "read": rewrite.configs[1]},
        "written": written,
        "changed": [{"path": c.path, "new": c.before is None} for c in rewrite.changes],
        "skipped": [{"path": p, "reason": why} for p, why in sorted(rewrite.skipped.items())],
        "wrap_sites": [
            {"path": s.path, "line": s.line, "form": s.form, "units": s.units} for s in rewrite.wrap_sites
        ],
        "findings": [finding_record(item) for item in rewrite.reported],
    }
    return json.dumps(report, indent=1)


def show(rewrite: Rewrite, console: Console, *, written: bool, verbose: bool = False) -> None:
    """Print the report for people."""
    _show_wraps(rewrite, console)
    _show_findings(rewrite, console, verbose=verbose)
    _show_files(rewrite, console, written=written)
    console.print(summary(rewrite, written=written), markup=False)


def summary(rewrite: Rewrite, *, written: bool) -> str:
    """What was searched and what came of it; never a bare "0 issues"."""
    searched = (
        f"Searched {_count(rewrite.searched, 'Python file')}, read {rewrite.read} of them "
        "(those that name FSDP, and what they import or are imported by)."
    )
    if rewrite.configs[0]:
        files, read = rewrite.configs
        searched += f" Of {_count(files, 'configuration file')}, {read} may hold FSDP settings and were read."
    if rewrite.skipped:
        searched += f" {_count(len(rewrite.skipped), 'file')} could not be read; see above."
    if not rewrite.wrap_sites and not rewrite.reported:
        return f"{searched}\nNo FSDP1 code was found in them."
    verb = "Changed" if written else "Would change"
    counts = _counts(rewrite.reported)
    sites = [s for s in rewrite.wrap_sites if s.form != "left"]
    return (
        f"{searched}\n{verb} {_count(len(rewrite.changes), 'file')}; {len(sites)} of "
        f"{_count(len(rewrite.wrap_sites), 'wrap call')} translated. "
        f"Findings: {counts[Outcome.DONE]} translated, {counts[Outcome.TODO]} left to you, "
        f"{counts[Outcome.NOTE]} to know, {counts[Outcome.IGNORED]} ignored by comments."
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _counts(reported: Iterable[Reported]) -> dict[Outcome, int]:
    counts = dict.fromkeys(Outcome, 0)
    for item in reported:
        counts[item.outcome] += 1
    return counts


def _show_wraps(rewrite: Rewrite, console: Console) -> None:
    if not rewrite.wrap_sites:
        return
    console.print("Wrap calls", style="bold")
    for site in rewrite.wrap_sites:
        units = f"; units: {site.units}" if site.units else ""
        console.print(f"  {site.path}:{site.line}  {_FORMS[site.form]}{units}", markup=False)
    console.print()


def _show_findings(rewrite: Rewrite, console: Console, *, verbose: bool) -> None:
    titles = {
        Outcome.TODO: ("Left to you", "bold red"),
        Outcome.NOTE: ("To know", "bold"),
        Outcome.IGNORED: ("Ignored by comments", "bold"),
        Outcome.DONE: ("Translated", "bold green"),
    }
    for outcome, (title, style) in titles.items():
        items = [item for item in rewrite.reported if item.outcome is outcome]
        if not items or (outcome is Outcome.DONE and not verbose):
            continue
        console.print(title, style=style)
        for item in items:
            found = item.finding
            console.print(
                f"  {found.place.path}:{found.place.line}: {found.code} {found.message}", markup=False
            )
            if found.remedy and outcome is not Outcome.DONE:
                console.print(f"      {found.remedy}", markup=False, style="dim")
            if item.detail:
                console.print(f"      {item.detail}", markup=False, style="dim")
        console.print()


def _show_files(rewrite: Rewrite, console: Console, *, written: bool) -> None:
    if not rewrite.changes:
        return
    console.print("Files changed" if written else "Files that would change", style="bold")
    for change in rewrite.changes:
        console.print(f"  {change.path}{' (new)' if change.before is None else ''}", markup=False)
    console.print()
