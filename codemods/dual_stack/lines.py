"""Edits applied with a record of where each line of the result came from.

Findings after a branch was dropped are about the shortened text, while people look at the file as it is: each
line of the shortened text therefore remembers its line in the original.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from codemods.editing.apply import shifted, within_hole
from codemods.model import Edit, Hole, Ref, Span


@dataclass(frozen=True, slots=True)
class Traced:
    """Text and, for each of its lines, the line (from 1) of the text it was made from."""

    text: str
    lines: tuple[int, ...]

    def __add__(self, other: Traced) -> Traced:
        head, (joint, *_), (first, *tail) = self.lines[:-1], self.lines[-1:], other.lines
        has_text = bool(self.text.rpartition("\n")[2].strip())
        return Traced(self.text + other.text, (*head, joint if has_text else first, *tail))


def traced(text: str, edits: Sequence[Edit], newline: str) -> Traced:
    """The text with all edits done (see `codemods.editing.apply.apply_edits`)."""
    unique = list(dict.fromkeys(edits))
    ordered = sorted(unique, key=lambda e: (e.span.start, e.span.end > e.span.start, -e.span.end))
    return _emit(text, Span(0, len(text)), ordered, newline)


def _emit(text: str, span: Span, edits: Sequence[Edit], newline: str) -> Traced:
    pieces: list[Traced] = []
    position = span.start
    remaining = [e for e in edits if span.holds(e.span)]
    while remaining:
        edit = remaining.pop(0)
        pieces.append(_original(text, position, edit.span.start))
        inner = [e for e in remaining if edit.span.holds(e.span) and within_hole(edit, e.span)]
        remaining = [e for e in remaining if e not in inner]
        at = text.count("\n", 0, edit.span.start) + 1
        for part in edit.code:
            match part:
                case str():
                    new = part if newline == "\n" else part.replace("\n", newline)
                    pieces.append(Traced(new, (at,) * (new.count("\n") + 1)))
                case Hole():
                    within = [e for e in inner if part.span.holds(e.span)]
                    kept = _emit(text, part.span, within, newline)
                    moved = kept.text
                    if part.indent:
                        moved = shifted(kept.text, part.indent, first_line=part.first_line)
                    pieces.append(Traced(moved, kept.lines))
                case Ref():
                    raise AssertionError("a dropped branch needs no new names")
        position = edit.span.end
    pieces.append(_original(text, position, span.end))
    joined = Traced("", (text.count("\n", 0, span.start) + 1,))
    for piece in pieces:
        joined = joined + piece if piece.text else joined
    return joined


def _original(text: str, start: int, end: int) -> Traced:
    first = text.count("\n", 0, start) + 1
    return Traced(text[start:end], tuple(range(first, first + text.count("\n", start, end) + 1)))


def composed(inner: Sequence[int], outer: Sequence[int]) -> tuple[int, ...]:
    """Lines of a text whose edits were applied to a text that has a record itself."""
    return tuple(outer[min(line, len(outer)) - 1] for line in inner)
