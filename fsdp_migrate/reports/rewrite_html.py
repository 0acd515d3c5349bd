"""The report of `rewrite` as one HTML page that needs nothing else: no network, no other file, no script."""

from __future__ import annotations

from html import escape
from importlib import resources

from codemods.model import Outcome
from fsdp_migrate import __version__
from fsdp_migrate.reports.rewrite import (
    OUTCOMES,
    WRAP_FORMS,
    RewriteReport,
    lines_before,
    meanings,
    outcome,
    searched,
)
from fsdp_migrate.reports.rewrite_html_file import file_section, prose, shown

_SHORT = 16
"""Rows, the head included."""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


def as_html(report: RewriteReport) -> str:
    """The page: summary, filter, then each file with its findings and its changes side by side."""
    paths = sorted({*report.by_file, *(change.path for change in report.rewrite.changes)})
    changes = {change.path: change for change in report.rewrite.changes}
    files = "".join(
        file_section(number, path, report.by_file.get(path, ()), changes.get(path))
        for number, path in enumerate(paths)
    )
    style, script = (
        resources.files("fsdp_migrate.reports").joinpath(name).read_text(encoding="utf-8")
        for name in ("rewrite.css", "rewrite.js")
    )
    name = shown(report.target.name)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        f"<title>FSDP1 to FSDP2: {name}</title>\n<style>\n{style}</style>\n</head>\n"
        f"<body>\n<header>\n<h1>FSDP1 to FSDP2 <span>{name}</span></h1>\n"
        f"{_summary(report)}{_contents(report, paths)}</header>\n{_filter(report)}"
        f"<main>\n{files}<p id=nothing hidden>No finding matches the filter.</p>\n</main>\n"
        f"<footer>Written by fsdp-migrate {__version__}.</footer>\n<script>\n{script}</script>\n"
        "</body>\n</html>\n"
    )


def _summary(report: RewriteReport) -> str:
    counts = report.counts()
    tiles = "".join(
        f'<a class="tile {kind.value}" href="#outcome={kind.value}"><b>{counts[kind]}</b> {words}</a>'
        if counts[kind]
        else f"<div class=tile><b>0</b> {words}</div>"
        for kind, words in OUTCOMES.items()
    )
    wraps = len(report.rewrite.wrap_sites)
    tiles += f"<div class=tile><b>{report.translated_wraps}/{wraps}</b> wrap calls translated</div>"
    changed = len(report.rewrite.changes)
    verb = "changed" if report.written else "would change"
    tiles += f"<div class=tile><b>{changed}</b> file{'' if changed == 1 else 's'} {verb}</div>"
    words = escape(" ".join(filter(None, (searched(report), outcome(report), lines_before(report)))))
    return f"<div class=tiles>{tiles}</div>\n<p>{words}</p>\n{_codes(report)}{_wraps(report)}"


def _codes(report: RewriteReport) -> str:
    """The codes with their meaning; each leads to its findings."""
    if not report.rewrite.reported:
        return ""
    meaning = meanings()
    kinds = [kind for kind in OUTCOMES if report.counts()[kind]]
    head = "".join(f"<th class=count>{OUTCOMES[kind]}" for kind in kinds)
    rows = "".join(
        f"<tr><td><a href=#code={code}>{code}</a></td><td>{prose(meaning.get(code, ''))}</td>"
        + "".join(f"<td class=count>{found[kind] or ''}</td>" for kind in kinds)
        + "</tr>\n"
        for code, found in report.by_code()
    )
    return _table("Findings by code", f"<tr><th>code<th>meaning{head}</tr>\n{rows}")


def _wraps(report: RewriteReport) -> str:
    rows = "".join(
        f"<tr><td><code>{shown(site.path)}:{site.line}</code></td><td>{WRAP_FORMS[site.form]}</td>"
        f"<td>{prose(site.units)}</td></tr>\n"
        for site in report.rewrite.wrap_sites
    )
    return _table("Wrap calls", f"<tr><th>wrap call<th>how<th>units</tr>\n{rows}") if rows else ""


def _contents(report: RewriteReport, paths: list[str]) -> str:
    """The files with what is to be done in each; each leads to its section."""
    if len(paths) < 2:
        return ""
    rows = ""
    for number, path in enumerate(paths):
        kinds = [entry.item.outcome for entry in report.by_file.get(path, ())]
        left = kinds.count(Outcome.TODO)
        rows += (
            f"<tr><td><a href=#f{number}><code>{shown(path)}</code></a></td>"
            f"<td class='count todo'>{left or ''}</td><td class=count>{len(kinds) - left or ''}</td></tr>\n"
        )
    head = f"<tr><th>file<th class=count>{OUTCOMES[Outcome.TODO]}<th class=count>other findings</tr>\n"
    return _table("Files", head + rows)


def _table(title: str, rows: str) -> str:
    """Open where it is short: the findings should not be far."""
    is_open = " open" if rows.count("<tr>") <= _SHORT else ""
    return f"<details class=part{is_open}><summary>{title}</summary><table>{rows}</table></details>\n"


def _filter(report: RewriteReport) -> str:
    """Hidden until the script shows it: without one it would do nothing."""
    if not report.rewrite.reported:
        return ""
    meaning = meanings()
    outcomes = "".join(
        f"<label><input type=checkbox name=outcome value={kind.value} checked> {words}</label>"
        for kind, words in OUTCOMES.items()
        if report.counts()[kind]
    )
    codes = "".join(
        f'<label title="{escape(meaning.get(code, ""), quote=True)}">'
        f"<input type=checkbox name=code value={code} checked> {code} <i>{sum(found.values())}</i></label>"
        for code, found in report.by_code()
    )
    return (
        f"<form id=filter hidden>\n<fieldset><legend>Outcome</legend>{outcomes}</fieldset>\n"
        f"<fieldset class=codes><legend>Code</legend>{codes}"
        "<button type=button data-all=1>all</button><button type=button data-all=0>none</button></fieldset>\n"
        "<input type=search name=text placeholder='Search findings and files' aria-label='Search'>\n"
        "<output id=shown></output></form>\n"
    )
