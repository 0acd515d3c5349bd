"""The report of `rewrite` for a terminal."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterable
from typing import TYPE_CHECKING

from codemods.model import Outcome
from fsdp_migrate.reports.rewrite import (
    OUTCOMES,
    WRAP_FORMS,
    Entry,
    RewriteReport,
    count,
    lines_before,
    meanings,
    outcome,
    searched,
)
from fsdp_migrate.reports.visible import visible

if TYPE_CHECKING:
    from rich.console import Console

_STYLES = {Outcome.TODO: "bold red", Outcome.NOTE: "bold", Outcome.IGNORED: "dim", Outcome.DONE: "green"}
_WIDEST = 120
"""Columns: prose is no easier to read beyond."""


def as_text(report: RewriteReport) -> str:
    """The whole report as plain text, what was translated included."""
    from rich.console import Console

    stream = io.StringIO()
    show(
        report, Console(file=stream, width=120, color_system=None, soft_wrap=True, emoji=False), verbose=True
    )
    return stream.getvalue()


def show(report: RewriteReport, console: Console, *, verbose: bool = False) -> None:
    """Print the summary, then the findings by file.

    Args:
        verbose: show what was translated too; it is counted in any case.
    """
    _show_summary(report, console)
    if told := lines_before(report):
        _say(console, told, "", style="dim")
        console.print()
    hidden = 0
    for path, entries in report.by_file.items():
        shown = [e for e in entries if verbose or e.item.outcome is not Outcome.DONE]
        hidden += len(entries) - len(shown)
        if shown:
            _say(console, path, "", style="bold")
            _show_entries(shown, console)
            console.print()
    if hidden:
        _say(
            console, f"{count(hidden, 'translated finding')} not shown here; -v shows them.", "", style="dim"
        )
    left = report.counts()[Outcome.TODO]
    if left:
        text = f"{count(left, 'finding')} left to you. `fsdp-migrate explain CODE` says more about a code."
        _say(console, text, "")


def _say(console: Console, text: str, indent: str, *, style: str = "", following: str | None = None) -> None:
    """A paragraph; on a terminal its further lines are set in, elsewhere it is one line."""
    text = visible(text)
    if not console.soft_wrap:
        text = textwrap.fill(
            text,
            max(40, min(console.width, _WIDEST)),
            initial_indent=indent,
            subsequent_indent=f"{indent}    " if following is None else following,
            break_long_words=False,
            break_on_hyphens=False,
        )
    else:
        text = indent + text
    console.print(text, style=style, markup=False, soft_wrap=True)


def _show_summary(report: RewriteReport, console: Console) -> None:
    rewrite = report.rewrite
    console.print("Summary", style="bold")
    _say(console, searched(report), "  ", following="  ")
    _say(console, outcome(report), "  ", following="  ")
    console.print()
    if rewrite.wrap_sites:
        console.print("Wrap calls", style="bold")
        for site in rewrite.wrap_sites:
            units = f"; units: {site.units}" if site.units else ""
            _say(console, f"{site.path}:{site.line}  {WRAP_FORMS[site.form]}{units}", "  ")
        console.print()
    if rewrite.changes:
        console.print("Files changed" if report.written else "Files that would change", style="bold")
        for change in rewrite.changes:
            _say(console, f"{change.path}{' (new)' if change.before is None else ''}", "  ")
        console.print()
    _show_codes(report, console)


def _show_codes(report: RewriteReport, console: Console) -> None:
    if not report.rewrite.reported:
        return
    meaning = meanings()
    console.print("Findings by code", style="bold")
    for code, outcomes in report.by_code():
        numbers = ", ".join(f"{outcomes[kind]} {words}" for kind, words in OUTCOMES.items() if outcomes[kind])
        _say(console, f"{code}  {meaning.get(code, '')}: {numbers}", "  ", following=" " * 9)
    console.print()


def _show_entries(entries: Iterable[Entry], console: Console) -> None:
    for entry in entries:
        found = entry.item.finding
        # One line that editors and terminals can jump to, as compilers write it.
        where = f"{found.place.path}:{found.place.line}:{found.place.column}"
        text = f"{where}: {found.code} [{entry.outcome}] {found.message}"
        is_todo = entry.item.outcome is Outcome.TODO
        _say(console, text, "  ", style=_STYLES[Outcome.TODO] if is_todo else "", following=" " * 6)
        width = len(str(entry.lines[-1].number)) if entry.lines else 0
        for line in entry.lines:
            # Code is never wrapped here: a terminal does it, and what is copied from it stays code.
            code = f"      {line.number:>{width}} | {visible(line.text)}"
            console.print(code.rstrip(), markup=False, style="dim", soft_wrap=True)
        if entry.omitted:
            _say(console, f"{' ' * width} | ... {count(entry.omitted, 'more line')}", "      ", style="dim")
        if found.remedy and entry.item.outcome is not Outcome.DONE:
            _say(console, f"what to do: {found.remedy}", "      ", following=" " * 8)
        if entry.why:
            _say(console, f"why: {entry.why}", "      ", following=" " * 8)
