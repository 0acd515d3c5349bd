"""The report of `rewrite` for a terminal."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import TYPE_CHECKING

from codemods.model import Outcome
from fsdp_migrate.reports.rewrite import (
    LINES_BEFORE,
    OUTCOMES,
    WRAP_FORMS,
    Entry,
    RewriteReport,
    count,
    meanings,
    outcome,
    searched,
)

if TYPE_CHECKING:
    from rich.console import Console

_STYLES = {Outcome.TODO: "bold red", Outcome.NOTE: "bold", Outcome.IGNORED: "dim", Outcome.DONE: "green"}


def as_text(report: RewriteReport) -> str:
    """The whole report as plain text, what was translated included."""
    from rich.console import Console

    stream = io.StringIO()
    show(report, Console(file=stream, width=120, color_system=None, soft_wrap=True), verbose=True)
    return stream.getvalue()


def show(report: RewriteReport, console: Console, *, verbose: bool = False) -> None:
    """Print the summary, then the findings by file.

    Args:
        verbose: show what was translated too; it is counted in any case.
    """
    _show_summary(report, console)
    if report.written and report.rewrite.changes and report.by_file:
        console.print(f"{LINES_BEFORE}\n", style="dim", markup=False)
    hidden = 0
    for path, entries in report.by_file.items():
        shown = [e for e in entries if verbose or e.item.outcome is not Outcome.DONE]
        hidden += len(entries) - len(shown)
        if shown:
            console.print(path, style="bold", markup=False)
            _show_entries(shown, console)
            console.print()
    if hidden:
        console.print(f"{count(hidden, 'translated finding')} not shown here; -v shows them.", style="dim")
    left = report.counts()[Outcome.TODO]
    if left:
        console.print(
            f"{count(left, 'finding')} left to you. `fsdp-migrate explain CODE` says more about a code.",
            markup=False,
        )


def _show_summary(report: RewriteReport, console: Console) -> None:
    rewrite = report.rewrite
    console.print("Summary", style="bold")
    console.print(f"  {searched(report)}\n  {outcome(report)}\n", markup=False)
    if rewrite.wrap_sites:
        console.print("Wrap calls", style="bold")
        for site in rewrite.wrap_sites:
            units = f"; units: {site.units}" if site.units else ""
            console.print(f"  {site.path}:{site.line}  {WRAP_FORMS[site.form]}{units}", markup=False)
        console.print()
    if rewrite.changes:
        console.print("Files changed" if report.written else "Files that would change", style="bold")
        for change in rewrite.changes:
            console.print(f"  {change.path}{' (new)' if change.before is None else ''}", markup=False)
        console.print()
    _show_codes(report, console)


def _show_codes(report: RewriteReport, console: Console) -> None:
    if not report.rewrite.reported:
        return
    meaning = meanings()
    console.print("Findings by code", style="bold")
    for code, outcomes in report.by_code():
        numbers = ", ".join(f"{outcomes[kind]} {words}" for kind, words in OUTCOMES.items() if outcomes[kind])
        console.print(f"  {code}  {meaning.get(code, '')}: {numbers}", markup=False)
    console.print()


def _show_entries(entries: Iterable[Entry], console: Console) -> None:
    for entry in entries:
        found = entry.item.finding
        # One line that editors and terminals can jump to, as compilers write it.
        console.print(
            f"  {found.place.path}:{found.place.line}:{found.place.column}: {found.code} "
            f"[{entry.outcome}] {found.message}",
            markup=False,
            style=_STYLES[entry.item.outcome] if entry.item.outcome is Outcome.TODO else "",
        )
        width = len(str(entry.lines[-1].number)) if entry.lines else 0
        for line in entry.lines:
            console.print(f"      {line.number:>{width}} | {line.text}", markup=False, style="dim")
        if entry.omitted:
            console.print(
                f"      {' ' * width} | ... {count(entry.omitted, 'more line')}", markup=False, style="dim"
            )
        if found.remedy and entry.item.outcome is not Outcome.DONE:
            console.print(f"      what to do: {found.remedy}", markup=False)
        if entry.why:
            console.print(f"      why: {entry.why}", markup=False)
