"""The report of `rewrite` as Markdown, to be pasted into a pull request."""

from __future__ import annotations

import re

from codemods.model import Outcome
from fsdp_migrate import __version__
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

_TABLE_BREAKERS = re.compile(r"[|\r\n]")


def as_markdown(report: RewriteReport) -> str:
    """The summary, then the findings by file; what was translated is folded away."""
    parts = ["# FSDP1 to FSDP2", "", "## Summary", "", searched(report), "", outcome(report), ""]
    parts += _codes(report)
    parts += _wraps(report)
    parts += _files(report)
    if report.by_file:
        parts += ["## Findings", ""]
        parts += [lines_before(report), ""] if lines_before(report) else []
    for path, entries in report.by_file.items():
        parts += [f"### {_code(path)}", ""]
        for entry in entries:
            if entry.item.outcome is not Outcome.DONE:
                parts += _entry(entry)
        translated = [entry for entry in entries if entry.item.outcome is Outcome.DONE]
        if translated:
            parts += ["<details>", f"<summary>{count(len(translated), 'translated finding')}</summary>", ""]
            for entry in translated:
                parts += _entry(entry)
            parts += ["</details>", ""]
    parts.append(f"Written by fsdp-migrate {__version__}.")
    return "\n".join(parts) + "\n"


def _codes(report: RewriteReport) -> list[str]:
    if not report.rewrite.reported:
        return []
    meaning = meanings()
    head = " | ".join(OUTCOMES.values())
    rows = [f"| code | meaning | {head} |", "|---|---|" + "---:|" * len(OUTCOMES)]
    for code, found in report.by_code():
        numbers = " | ".join(str(found[kind]) for kind in OUTCOMES)
        rows.append(f"| {code} | {_cell(meaning.get(code, ''))} | {numbers} |")
    return [*rows, ""]


def _wraps(report: RewriteReport) -> list[str]:
    if not report.rewrite.wrap_sites:
        return []
    rows = ["| wrap call | how | units |", "|---|---|---|"]
    for site in report.rewrite.wrap_sites:
        rows.append(
            f"| {_cell(_code(f'{site.path}:{site.line}'))} | {WRAP_FORMS[site.form]} | {_cell(site.units)} |"
        )
    return [*rows, ""]


def _files(report: RewriteReport) -> list[str]:
    if not report.rewrite.changes:
        return []
    title = "Files changed" if report.written else "Files that would change"
    rows = [
        f"- {_code(change.path)}{' (new)' if change.before is None else ''}"
        for change in report.rewrite.changes
    ]
    return [f"{title}:", "", *rows, ""]


def _entry(entry: Entry) -> list[str]:
    found = entry.item.finding
    where = f"line {found.place.line}" if entry.lines else "the file"
    parts = [f"- **{found.code}**, {where}, {entry.outcome}: {_inline(found.message)}"]
    if found.remedy and entry.item.outcome is not Outcome.DONE:
        parts.append(f"  What to do: {_inline(found.remedy)}")
    if entry.why:
        parts.append(f"  Why: {_inline(entry.why)}")
    if entry.lines:
        lines = [visible(line.text) for line in entry.lines]
        fence = _fence("\n".join(lines))
        parts += ["", f"  {fence}python", *(f"  {line}".rstrip() for line in lines)]
        if entry.omitted:
            parts.append(f"  # ... {count(entry.omitted, 'more line')}")
        parts.append(f"  {fence}")
    return [*parts, ""]


def _fence(text: str) -> str:
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    return "`" * (longest + 1)


def _code(text: str) -> str:
    text = visible(text)
    return f"`{text}`" if "`" not in text else f"`` {text} ``"


def _inline(text: str) -> str:
    """Text outside code spans with what Markdown or HTML would take for markup escaped."""
    pieces = re.split(r"(`[^`]*`)", visible(" ".join(text.split())))
    return "".join(
        piece if piece.startswith("`") else re.sub(r"([<>*_\[\]\\])", r"\\\1", piece) for piece in pieces
    )


def _cell(text: str) -> str:
    return _TABLE_BREAKERS.sub(lambda found: "\\|" if found[0] == "|" else " ", text)
