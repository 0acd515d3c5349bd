"""One file of the HTML report: its findings, and its changes side by side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from codemods.model import FileChange, Outcome
from codemods.sources import decode
from fsdp_migrate.reports.rewrite import Entry, count
from fsdp_migrate.reports.side_by_side import Hunk, Side, hunks
from fsdp_migrate.reports.visible import clipped, visible


def file_section(number: int, path: str, entries: Sequence[Entry], change: FileChange | None) -> str:
    """A section of the page.

    Args:
        number: of the file on the page; its anchors begin with `f<number>`.
    """
    left = sum(entry.item.outcome is Outcome.TODO for entry in entries)
    is_new = change is not None and change.before is None
    badges = f" <span class='badge todo'>{left} left to you</span>" if left else ""
    badges += " <span class=badge>new file</span>" if is_new else ""
    found = _hunks_of(change) if change is not None else []
    anchors = {row.old.number for hunk in found for row in hunk.rows if row.old is not None}
    findings = "".join(_finding(number, entry, anchors) for entry in entries)
    return (
        f'<section class=file id=f{number} data-path="{shown(path)}"{" data-new=1" if is_new else ""}>'
        f"<h2><a href=#f{number}>{shown(path)}</a>{badges}</h2>\n"
        f"{f'<ol class=findings>{findings}</ol>' if findings else ''}\n"
        f"{_diff(number, found, entries, is_new=is_new)}</section>\n"
    )


def shown(text: str) -> str:
    """Text of a file or a name, escaped for elements and attributes, its control characters as signs."""
    return escape(visible(text), quote=True)


def prose(text: str) -> str:
    """Escaped, with `code` set as code."""
    pieces = shown(text).split("`")
    if len(pieces) % 2 == 0:
        return shown(text)
    return "".join(piece if i % 2 == 0 else f"<code>{piece}</code>" for i, piece in enumerate(pieces))


def _finding(number: int, entry: Entry, anchors: set[int]) -> str:
    found = entry.item.finding
    lines = "".join(f"<span class=n>{line.number}</span>{shown(line.text)}\n" for line in entry.lines)
    if entry.omitted:
        lines += f"<span class=n></span>... {count(entry.omitted, 'more line')}\n"
    more = (
        f"<p><b>What to do</b> {prose(found.remedy)}</p>"
        if found.remedy and entry.item.outcome is not Outcome.DONE
        else ""
    )
    more += f"<p><b>Why</b> {prose(entry.why)}</p>" if entry.why else ""
    where = f"line {found.place.line}" if entry.lines else "the file"
    if entry.lines and found.place.line in anchors:
        where = f"<a href=#f{number}l{found.place.line}>{where}</a>"
    return (
        f'<li class="finding {entry.item.outcome.value}" data-code={found.code} '
        f"data-outcome={entry.item.outcome.value}>"
        f"<div><span class=code>{found.code}</span> {where} "
        f'<span class="badge {entry.item.outcome.value}">{entry.outcome}</span> {prose(found.message)}</div>'
        f"{more}{f'<pre dir=ltr>{lines}</pre>' if lines else ''}</li>\n"
    )


def _hunks_of(change: FileChange) -> list[Hunk]:
    before = decode(change.path, change.before).text if change.before is not None else None
    return hunks(before, decode(change.path, change.after).text)


def _diff(number: int, found: Sequence[Hunk], entries: Iterable[Entry], *, is_new: bool) -> str:
    if not found:
        return ""
    spans = [(e.item.finding.place.line, e.end_line, e.item.finding.code) for e in entries]
    body = "".join(_hunk(number, hunk, spans, is_new=is_new) for hunk in found)
    columns, head = "<col class=num><col>", "<th colspan=2>after (FSDP2)"
    if not is_new:
        columns, head = columns * 2, f"<th colspan=2>before (FSDP1){head}"
    return (
        f"<div class=wide><table class='diff{' one' if is_new else ''}' dir=ltr>"
        f"<colgroup>{columns}</colgroup><thead><tr>{head}</tr></thead>{body}</table></div>\n"
    )


def _hunk(number: int, hunk: Hunk, spans: list[tuple[int, int, str]], *, is_new: bool) -> str:
    codes = sorted({code for first, last, code in spans if first <= hunk.last and last >= hunk.first})
    rows = []
    for row in hunk.rows:
        kind = "same" if row.is_same else "changed"
        anchor = f" id=f{number}l{row.old.number}" if row.old else ""
        old = "" if is_new else _half(row.old, "old")
        rows.append(f"<tr class={kind}{anchor}>{old}{_half(row.new, 'new')}</tr>\n")
    return f'<tbody data-codes="{" ".join(codes)}">{"".join(rows)}</tbody>'


def _half(side: Side | None, name: str) -> str:
    if side is None:
        return f"<td class='num none'></td><td class='{name} none'></td>"
    tag = "del" if name == "old" else "ins"
    # A line that differs as a whole has its colour from the row; words are marked where only they differ.
    is_whole = all(piece.differs for piece in side.pieces)
    texts = [shown(clipped(piece.text)) for piece in side.pieces]
    text = "".join(
        f"<{tag}>{text}</{tag}>" if piece.differs and not is_whole else text
        for piece, text in zip(side.pieces, texts, strict=True)
    )
    return f"<td class='num {name}-num'>{side.number}</td><td class={name}>{text}</td>"
