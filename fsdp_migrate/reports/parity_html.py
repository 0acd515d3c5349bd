"""The verdict of `verify` as one HTML file that needs nothing else: words, tables and charts as SVG."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from fsdp_migrate.reports.parity_charts import difference_curves, heat_strip, loss_curves, memory_bars
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
from fsdp_migrate.reports.parity_timeline import timelines
from fsdp_migrate.verify.model import Outcome

if TYPE_CHECKING:
    from fsdp_migrate.verify.model import ParityReport

_MARKS = {
    Outcome.EQUAL: ("=", "good", "equal"),
    Outcome.WITHIN: ("~", "good", "within tolerance"),
    Outcome.DIFFERS: ("✗", "bad", "differs"),
    Outcome.NOT_OBSERVED: ("–", "faint", "not observed"),
}


def render(report: ParityReport) -> str:
    """The page."""
    style = Path(__file__).with_name("parity.css").read_text(encoding="utf-8")
    return (
        "<!doctype html>\n<html lang=en>\n<head>\n<meta charset=utf-8>\n"
        '<meta name=viewport content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(headline(report))}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(_parts(report))
        + "\n</main>\n</body>\n</html>"
    )


def _parts(report: ParityReport) -> Iterable[str]:
    kind, word = ("good", "PASS") if report.passed else ("bad", "FAIL")
    yield f"<h1 class={kind}><b>{word}</b> {escape(headline(report)[6:])}</h1>"
    yield f"<p class=faint>{escape(setting(report))}</p>"
    yield from (f"<p class=beware><b>Beware</b> {escape(line)}</p>" for line in report.warnings)
    for title, said, hint in ends(report):
        yield f"<p class=why><b>{title}</b> {escape(hint)}.</p><pre class=scroll>{escape(said)}</pre>"
    if not report.passed:
        yield from _why(report)
    yield f"<h2>Checks</h2>{_checks(report)}"
    yield from (f"<p class=faint>Allowed: {escape(origin)}.</p>" for origin in origins(report))
    yield f"<h2>Loss</h2>{loss_curves(report)}"
    yield f"<h2>Differences by step</h2>{difference_curves(report)}"
    yield f"<h2>Weights, parameter by parameter</h2>{heat_strip(report)}"
    yield f"<h2>Both arms</h2>{_table(('', 'original', 'candidate'), arm_rows(report))}"
    if report.timelines:
        yield f"<h2>One step, from left to right</h2>{timelines(report)}"
    if report.third:
        yield f"<h2>Third arm</h2><p>{escape(report.third)}.</p>"
    if report.performance:
        yield f"<h2>Speed and memory</h2>{memory_bars(report)}"
        yield _table(performance_header(report), performance_rows(report))
        yield f"<p class=faint>{escape(MFU_FORMULA)}.</p>"
    if report.largest:
        yield f"<h2>Largest differences</h2>{_largest(report)}"
    yield _folded("Losses and norms to full precision", loss_rows(report))
    yield from _notes(report)


def _why(report: ParityReport) -> Iterable[str]:
    if first := first_words(report):
        yield f"<p class=why><b>First difference</b> {escape(first)}</p>"
    for position, cause in enumerate(report.causes):
        title = "Likely cause" if position == 0 else "Also seen"
        yield (
            f"<p class=why><b>{title}</b> {escape(cause.text)}. <b>What to do</b> {escape(cause.remedy)}.</p>"
        )


def _checks(report: ParityReport) -> str:
    rows = "".join(
        f"<tr><td class={_MARKS[check.outcome][1]} title='{_MARKS[check.outcome][2]}'>"
        f"{_MARKS[check.outcome][0]}</td><td>{escape(check.title)}</td><td>{escape(check_words(check))}</td></tr>"
        for check in report.checks
    )
    return f"<div class=scroll><table>{rows}</table></div>"


def _largest(report: ParityReport) -> str:
    rows = [
        (
            str(one.step),
            quantity_words(one.quantity),
            one.name,
            f"{one.relative:.1e}",
            f"{one.limit:.1e}",
            f"{one.max_abs:.1e}",
        )
        for one in report.largest
    ]
    return _table(("step", "quantity", "tensor", "relative", "allowed", "absolute"), rows)


def _notes(report: ParityReport) -> Iterable[str]:
    for title, lines in (
        ("Notices", report.notices),
        ("Not observed", report.not_observed),
        ("Substituted for this rehearsal on the CPU", report.substitutions),
    ):
        if lines:
            items = "".join(f"<li>{escape(line)}</li>" for line in lines)
            yield f"<h2>{title}</h2><ul>{items}</ul>"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<div class=scroll><table><tr>{head}</tr>{body}</table></div>"


def _folded(title: str, rows: Iterable[Sequence[str]]) -> str:
    body = _table(("", "original", "candidate"), rows)
    return f"<details><summary>{escape(title)}</summary>{body}</details>"
