"""The verdict of `verify` for a terminal."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from fsdp_migrate.reports.parity_rows import (
    MFU_FORMULA,
    arm_rows,
    check_words,
    ends,
    first_words,
    headline,
    loss_rows,
    origins,
    performance_header,
    performance_rows,
    quantity_words,
    setting,
)
from fsdp_migrate.verify.model import Outcome

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from fsdp_migrate.verify.model import ParityReport

__all__ = ["headline", "render", "show"]

WIDTH = 80
"""Columns of a report that is not shown on a screen."""
_MARKS = {
    Outcome.EQUAL: ("=", "green"),
    Outcome.WITHIN: ("~", "green"),
    Outcome.DIFFERS: ("x", "bold red"),
    Outcome.NOT_OBSERVED: ("-", "dim"),
}


def render(report: ParityReport) -> str:
    """The report as plain text."""
    from rich.console import Console

    page = io.StringIO()
    show(report, Console(file=page, width=WIDTH, color_system=None, emoji=False))
    return page.getvalue().rstrip("\n")


def show(report: ParityReport, screen: Console) -> None:
    """Print the report."""
    from rich.text import Text

    screen.print(Text(headline(report), style="bold green" if report.passed else "bold red"))
    screen.print(f"      {setting(report)}\n", markup=False, soft_wrap=False)
    for line in report.warnings:
        screen.print(Text(f"Beware: {line}\n", style="bold yellow"), soft_wrap=False)
    for title, said, hint in ends(report):
        screen.print(Text(title, style="bold"))
        for line in said.split("\n"):
            screen.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)
        screen.print(f"  hint: {hint}\n", markup=False, soft_wrap=False)
    if not report.passed:
        _why(report, screen)
    screen.print(_checks(report))
    for origin in origins(report):
        screen.print(f"  allowed: {origin}", markup=False, soft_wrap=False)
    screen.print(_arms(report))
    if report.third:
        screen.print(f"\nThird arm\n  {report.third}", markup=False, soft_wrap=False)
    if report.performance:
        screen.print(_performance(report))
        screen.print(f"  {MFU_FORMULA}", markup=False, soft_wrap=False)
    if report.largest:
        screen.print(_largest(report))
    for title, lines in (
        ("Notices", report.notices),
        ("Not observed", report.not_observed),
        (
            "Substitutions (rehearsal on the CPU: says nothing of GPU kernels, memory or speed)",
            report.substitutions,
        ),
    ):
        if lines:
            screen.print(Text(f"\n{title}", style="bold"))
            for line in lines:
                screen.print(f"  {line}", markup=False, soft_wrap=False)
    if report.records is not None:
        screen.print(f"\nrecords and logs: {report.records}", markup=False)


def _why(report: ParityReport, screen: Console) -> None:
    from rich.text import Text

    if first := first_words(report):
        screen.print(Text("First difference", style="bold"))
        screen.print(f"  {first}", markup=False, soft_wrap=False)
    for position, cause in enumerate(report.causes):
        screen.print(Text("Likely cause" if position == 0 else "Also seen", style="bold"))
        screen.print(f"  {cause.text}", markup=False, soft_wrap=False)
        screen.print(f"  what to do: {cause.remedy}", markup=False, soft_wrap=False)
    screen.print()


def _table(title: str, *columns: str) -> Table:
    from rich.table import Table

    table = Table(*columns, title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    table.padding = (0, 2, 0, 0)
    for column in table.columns:
        column.overflow = "fold"  # a parameter's name cut short names nothing
    return table


def _checks(report: ParityReport) -> Table:
    from rich.text import Text

    table = _table("Checks", "", "", "")
    table.show_header = False
    for check in report.checks:
        mark, style = _MARKS[check.outcome]
        table.add_row(Text(f"  {mark}", style=style), Text(check.title), Text(check_words(check)))
    return table


def _arms(report: ParityReport) -> Table:
    table = _table("\nBoth arms", "", "original", "candidate")
    for row in (*arm_rows(report), *loss_rows(report)):
        table.add_row(f"  {row[0]}", *row[1:])
    return table


def _performance(report: ParityReport) -> Table:
    table = _table("\nSpeed and memory", *performance_header(report))
    for row in performance_rows(report):
        table.add_row(f"  {row[0]}", *row[1:])
    return table


def _largest(report: ParityReport) -> Table:
    from rich.text import Text

    table = _table("\nLargest differences", "", "step", "quantity", "apart", "allowed", "tensor")
    for one in report.largest:
        style = "red" if one.fails else ""
        cells = [
            str(one.step),
            quantity_words(one.quantity),
            f"{one.relative:.1e}",
            f"{one.limit:.1e}",
            one.name,
        ]
        table.add_row(*(Text(cell, style=style) for cell in ["  x" if one.fails else "  ~", *cells]))
    return table
