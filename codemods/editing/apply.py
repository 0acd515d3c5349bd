"""From edits to text: nested edits inside kept pieces are done first, lines move with their block."""

from __future__ import annotations

import io
import tokenize
from collections.abc import Callable, Sequence

from codemods.model import Edit, Hole, Ref, Span

Speller = Callable[[str, int], str]
"""From a dotted name and a text position to how the name is spelled there."""


def compatible(one: Edit, other: Edit) -> bool:
    """Whether two edits of one file can both be done: apart, or one within a kept piece of the other."""
    if one.path != other.path:
        return True
    a, b = one.span, other.span
    if a == b:
        return a.start == a.end or one.code == other.code
    if a.end <= b.start or b.end <= a.start:
        return True
    return within_hole(one, b) or within_hole(other, a)


def within_hole(edit: Edit, span: Span) -> bool:
    """Whether a span lies in a piece of the original that the edit keeps."""
    return any(isinstance(part, Hole) and part.span.holds(span) for part in edit.code)


def replaces(edit: Edit, span: Span) -> bool:
    """Whether an edit does away with the text of a span."""
    return edit.span.holds(span) and edit.span.start < edit.span.end and not within_hole(edit, span)


def apply_edits(text: str, edits: Sequence[Edit], spell: Speller, newline: str) -> str:
    """The text with all edits done.

    Args:
        edits: pairwise `compatible`; equal ones count once; insertions at one place keep their order.
        newline: line ending that new text is given.
    """
    return _emit(text, Span(0, len(text)), in_order(edits), spell, newline)


def in_order(edits: Sequence[Edit]) -> list[Edit]:
    """Different edits in the order in which they are done: the outer before what they hold."""
    unique = list(dict.fromkeys(edits))
    return sorted(unique, key=lambda e: (e.span.start, e.span.end > e.span.start, -e.span.end))


def _emit(text: str, span: Span, edits: Sequence[Edit], spell: Speller, newline: str) -> str:
    out: list[str] = []
    position = span.start
    remaining = [e for e in edits if span.holds(e.span)]
    while remaining:
        edit = remaining.pop(0)
        out.append(text[position : edit.span.start])
        inner = [e for e in remaining if edit.span.holds(e.span) and within_hole(edit, e.span)]
        inner = [e for e in inner if not _comes_after(text, edit, e)]
        remaining = [e for e in remaining if e not in inner]
        for part in edit.code:
            match part:
                case str():
                    out.append(part if newline == "\n" else part.replace("\n", newline))
                case Ref():
                    out.append(spell(part.name, edit.span.start))
                case Hole():
                    kept = _emit(
                        text, part.span, [e for e in inner if part.span.holds(e.span)], spell, newline
                    )
                    out.append(
                        shifted(kept, part.indent, first_line=part.first_line) if part.indent else kept
                    )
        position = edit.span.end
    out.append(text[position : span.end])
    return "".join(out)


def _comes_after(text: str, moved: Edit, lines: Edit) -> bool:
    """Whether lines that are put where a block ends belong to what follows it: they are indented less."""
    kept, first = moved.code[-1], lines.code[0] if lines.code else ""
    if not isinstance(kept, Hole) or not kept.indent or not isinstance(first, str):
        return False
    body = text[kept.span.start : kept.span.end]
    return lines.span == Span(kept.span.end, kept.span.end) and _white(first) < _white(body)


def _white(text: str) -> int:
    return len(text) - len(text.lstrip(" \t"))


def shifted(text: str, columns: int, *, first_line: bool) -> str:
    """Move lines left or right; lines that continue a string are left alone."""
    inside_string = _string_lines(text)
    lines = lines_of(text)
    for number, line in enumerate(lines):
        if (number == 0 and not first_line) or number in inside_string or not line.strip():
            continue
        if columns > 0:
            lines[number] = " " * columns + line
        else:
            white = len(line) - len(line.lstrip(" \t"))
            lines[number] = line[min(white, -columns) :]
    return "".join(lines)


def lines_of(text: str) -> list[str]:
    """The lines of a text as Python counts them, with their endings: a form feed ends none."""
    return list(io.StringIO(text, newline=""))


def _string_lines(text: str) -> set[int]:
    """Lines, from 0, that start inside a string literal."""
    found: set[int] = set()
    start_of: list[int] = []
    lead = "if 1:\n" if text[:1] in " \t" else ""
    skip = lead.count("\n")
    opened = getattr(tokenize, "FSTRING_START", -1)
    closed = getattr(tokenize, "FSTRING_END", -1)
    try:
        for token in tokenize.generate_tokens(io.StringIO(lead + text).readline):
            if token.type == tokenize.STRING:
                found.update(range(token.start[0] - skip, token.end[0] - skip))
            elif token.type == opened:
                start_of.append(token.start[0])
            elif token.type == closed:
                found.update(range(start_of.pop() - skip, token.end[0] - skip))
    except (tokenize.TokenError, IndentationError):
        pass  # the end of a piece may be anywhere; what was seen until then counts
    return found
