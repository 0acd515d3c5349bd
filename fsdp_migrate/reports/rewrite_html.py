"""The report of `rewrite` as one HTML page that needs nothing else: no network, no other file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources

from codemods.model import FileChange, Outcome
from codemods.sources import decode
from fsdp_migrate import __version__
from fsdp_migrate.reports.rewrite import (
    OUTCOMES,
    WRAP_FORMS,
    Entry,
    RewriteReport,
    count,
    meanings,
    outcome,
    searched,
)
from fsdp_migrate.reports.side_by_side import Hunk, Side, hunks


def as_html(report: RewriteReport) -> str:
    """The page: summary, filter, then each file with its findings and its changes side by side."""
    paths = sorted({*report.by_file, *(change.path for change in report.rewrite.changes)})
    changes = {change.path: change for change in report.rewrite.changes}
    meaning = meanings()
    files = "".join(
        _file(number, path, report.by_file.get(path, ()), changes.get(path))
        for number, path in enumerate(paths)
    )
    style, script = (
        resources.files("fsdp_migrate.reports").joinpath(name).read_text(encoding="utf-8")
        for name in ("rewrite.css", "rewrite.js")
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n"
        f"<title>FSDP1 to FSDP2: {escape(report.target.name)}</title>\n<style>\n{style}</style>\n</head>\n"
        f"<body>\n<header>\n<h1>FSDP1 to FSDP2 <span>{escape(report.target.name)}</span></h1>\n"
        f"{_summary(report)}</header>\n{_filter(report, meaning)}"
        f"<main>\n{files}<p id=nothing hidden>No finding matches the filter.</p>\n</main>\n"
        f"<footer>Written by fsdp-migrate {__version__}.</footer>\n<script>\n{script}</script>\n"
        "</body>\n</html>\n"
    )


def _summary(report: RewriteReport) -> str:
    counts = report.counts()
    tiles = "".join(
        f'<div class="tile {kind.value}"><b>{counts[kind]}</b> {words}</div>'
        for kind, words in OUTCOMES.items()
    )
    wraps = len(report.rewrite.wrap_sites)
    tiles += f'<div class="tile"><b>{report.translated_wraps}/{wraps}</b> wrap calls translated</div>'
    changed = len(report.rewrite.changes)
    verb = "changed" if report.written else "would change"
    tiles += f'<div class="tile"><b>{changed}</b> file{"" if changed == 1 else "s"} {verb}</div>'
    rows = "".join(
        f"<tr><td><code>{escape(site.path)}:{site.line}</code></td><td>{WRAP_FORMS[site.form]}</td>"
        f"<td>{_prose(site.units)}</td></tr>"
        for site in report.rewrite.wrap_sites
    )
    table = f"<table class=wraps><tr><th>wrap call<th>how<th>units</tr>{rows}</table>" if rows else ""
    words = escape(f"{searched(report)} {outcome(report)}")
    return f"<div class=tiles>{tiles}</div>\n<p>{words}</p>\n{table}\n"


def _filter(report: RewriteReport, meaning: dict[str, str]) -> str:
    if not report.rewrite.reported:
        return ""
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
        f"<form id=filter>\n<fieldset><legend>Outcome</legend>{outcomes}</fieldset>\n"
        f"<fieldset><legend>Code</legend>{codes}"
        "<button type=button data-all=1>all</button><button type=button data-all=0>none</button></fieldset>\n"
        "<input type=search name=text placeholder='Search findings and files' aria-label='Search'>\n"
        "<output id=shown></output></form>\n"
    )


def _file(number: int, path: str, entries: Sequence[Entry], change: FileChange | None) -> str:
    left = sum(entry.item.outcome is Outcome.TODO for entry in entries)
    badges = f"<span class='badge todo'>{left} left to you</span>" if left else ""
    badges += "<span class=badge>new file</span>" if change is not None and change.before is None else ""
    findings = "".join(_finding(number, entry) for entry in entries)
    return (
        f'<section class=file id=f{number} data-path="{escape(path, quote=True)}"'
        f"{' data-new=1' if change is not None and change.before is None else ''}>"
        f"<h2><a href=#f{number}>{escape(path)}</a> {badges}</h2>\n"
        f"<ol class=findings>{findings}</ol>\n{_diff(number, change, entries) if change else ''}</section>\n"
    )


def _finding(number: int, entry: Entry) -> str:
    found = entry.item.finding
    lines = "".join(f"<span class=n>{line.number}</span>{escape(line.text)}\n" for line in entry.lines) + (
        f"<span class=n></span>... {count(entry.omitted, 'more line')}\n" if entry.omitted else ""
    )
    more = (
        f"<p><b>What to do</b> {_prose(found.remedy)}</p>"
        if found.remedy and entry.item.outcome is not Outcome.DONE
        else ""
    )
    more += f"<p><b>Why</b> {_prose(entry.why)}</p>" if entry.why else ""
    where = (
        f"<a href=#f{number}l{found.place.line}>line {found.place.line}</a>" if entry.lines else "the file"
    )
    return (
        f'<li class="finding {entry.item.outcome.value}" data-code={found.code} '
        f"data-outcome={entry.item.outcome.value}>"
        f"<div><span class=code>{found.code}</span> {where} "
        f'<span class="badge {entry.item.outcome.value}">{entry.outcome}</span> {_prose(found.message)}</div>'
        f"{more}{f'<pre>{lines}</pre>' if lines else ''}</li>\n"
    )


def _prose(text: str) -> str:
    """Escaped, with `code` set as code."""
    pieces = escape(text).split("`")
    if len(pieces) % 2 == 0:
        return escape(text)
    return "".join(piece if i % 2 == 0 else f"<code>{piece}</code>" for i, piece in enumerate(pieces))


def _diff(number: int, change: FileChange, entries: Iterable[Entry]) -> str:
    before = decode(change.path, change.before).text if change.before is not None else None
    after = decode(change.path, change.after).text
    spans = [(e.item.finding.place.line, e.end_line, e.item.finding.code) for e in entries]
    body = "".join(_hunk(number, hunk, spans) for hunk in hunks(before, after))
    return (
        "<table class=diff><colgroup><col class=num><col><col class=num><col></colgroup>"
        f"<thead><tr><th colspan=2>before (FSDP1)<th colspan=2>after (FSDP2)</tr></thead>{body}</table>\n"
    )


def _hunk(number: int, hunk: Hunk, spans: list[tuple[int, int, str]]) -> str:
    codes = sorted({code for first, last, code in spans if first <= hunk.last and last >= hunk.first})
    rows = []
    for row in hunk.rows:
        kind = "same" if row.is_same else "changed"
        anchor = f" id=f{number}l{row.old.number}" if row.old else ""
        rows.append(f"<tr class={kind}{anchor}>{_half(row.old, 'old')}{_half(row.new, 'new')}</tr>\n")
    return f'<tbody data-codes="{" ".join(codes)}">{"".join(rows)}</tbody>'


def _half(side: Side | None, name: str) -> str:
    if side is None:
        return f"<td class='num none'></td><td class='{name} none'></td>"
    text = "".join(
        f"<{'del' if name == 'old' else 'ins'}>{escape(p.text)}</{'del' if name == 'old' else 'ins'}>"
        if p.differs
        else escape(p.text)
        for p in side.pieces
    )
    return f"<td class=num>{side.number}</td><td class={name}>{text}</td>"
