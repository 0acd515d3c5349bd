"""The verdict of `verify` as Markdown, made to be pasted into a pull request."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
    setting,
)
from fsdp_migrate.verify.model import Outcome

if TYPE_CHECKING:
    from fsdp_migrate.verify.model import ParityReport

_MARKS = {Outcome.EQUAL: "✅", Outcome.WITHIN: "✅", Outcome.DIFFERS: "❌", Outcome.NOT_OBSERVED: "➖"}


def render(report: ParityReport) -> str:
    """The report as GitHub-flavoured Markdown."""
    parts = [f"### {'✅' if report.passed else '❌'} FSDP1 → FSDP2: {headline(report)[6:]}", setting(report)]
    parts += [f"⚠️ **Beware:** {line}" for line in report.warnings]
    for title, said, hint in ends(report):
        parts.append(f"**{title}:** {hint}.\n\n````\n{said}\n````")
    if not report.passed:
        parts += _why(report)
    checks = [(_MARKS[check.outcome], check.title, check_words(check)) for check in report.checks]
    parts.append(_table(("", "check", "result"), checks))
    parts += [f"Allowed: {origin}." for origin in origins(report)]
    parts.append(_table(("", "original", "candidate"), arm_rows(report)))
    parts.append(
        _folded(
            "Loss and gradient norm, step by step", _table(("", "original", "candidate"), loss_rows(report))
        )
    )
    if report.third:
        parts.append(f"**Third arm:** {report.third}.")
    if report.performance:
        parts.append("#### Speed and memory")
        parts.append(_table(performance_header(report), performance_rows(report)))
        parts.append(f"{MFU_FORMULA}.")
    if report.largest:
        rows = [
            (
                str(one.step),
                one.quantity,
                f"`{one.name}`",
                f"{one.relative:.1e}",
                f"{one.limit:.1e}",
                f"{one.max_abs:.1e}",
            )
            for one in report.largest
        ]
        header = ("step", "quantity", "tensor", "relative", "allowed", "absolute")
        parts.append(_folded("Largest differences", _table(header, rows)))
    for title, lines in (
        ("Notices", report.notices),
        ("Not observed", report.not_observed),
        ("Substituted for this rehearsal on the CPU", report.substitutions),
    ):
        if lines:
            parts.append(f"**{title}**\n" + "\n".join(f"- {line}" for line in lines))
    return "\n\n".join(parts)


def _why(report: ParityReport) -> list[str]:
    parts = []
    if first := first_words(report):
        parts.append(f"**First difference:** {first}")
    for position, cause in enumerate(report.causes):
        title = "Likely cause" if position == 0 else "Also seen"
        parts.append(f"**{title}:** {cause.text}. **What to do:** {cause.remedy}.")
    return parts


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _folded(title: str, body: str) -> str:
    return f"<details><summary>{title}</summary>\n\n{body}\n\n</details>"
