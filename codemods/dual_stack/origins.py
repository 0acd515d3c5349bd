"""Edits applied with a record of where each character of the result came from.

Findings after a branch was dropped are about the shortened text, while people look at the file as it is: each
character of the shortened text therefore remembers its place in the original.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from codemods.editing.apply import in_order, lines_of, shifted, within_hole
from codemods.model import Edit, Hole, Ref, Span

Origins = array
"""For each character its position in another text; never falls."""


@dataclass(frozen=True, slots=True)
class Traced:
    """Text and, for each of its characters, the position of what it was made from."""

    text: str
    origins: Origins[int]


def unmoved(length: int) -> Origins[int]:
    """The record of a text that is as it was."""
    return array("q", range(length))


def traced(text: str, edits: Sequence[Edit], newline: str) -> Traced:
    """The text with all edits done (see `codemods.editing.apply.apply_edits`)."""
    pieces = list(_emit(text, Span(0, len(text)), in_order(edits), newline))
    origins = array("q")
    for piece in pieces:
        origins.extend(piece.origins)
    return Traced("".join(piece.text for piece in pieces), origins)


def _emit(text: str, span: Span, edits: Sequence[Edit], newline: str) -> Iterator[Traced]:
    position = span.start
    remaining = [e for e in edits if span.holds(e.span)]
    while remaining:
        edit = remaining.pop(0)
        yield _original(text, Span(position, edit.span.start))
        inner = [e for e in remaining if edit.span.holds(e.span) and within_hole(edit, e.span)]
        remaining = [e for e in remaining if e not in inner]
        position = edit.span.start
        for number, part in enumerate(edit.code):
            match part:
                case str():
                    new = part if newline == "\n" else part.replace("\n", newline)
                    following = edit.code[number + 1] if number + 1 < len(edit.code) else None
                    if isinstance(following, Hole):
                        yield _before(new, Span(position, max(position, following.span.start)))
                    else:
                        yield _after(new, Span(position, edit.span.end))
                case Hole():
                    within = [e for e in inner if part.span.holds(e.span)]
                    kept = list(_emit(text, part.span, within, newline))
                    yield from _moved(kept, part) if part.indent else kept
                    position = part.span.end
                case Ref():
                    raise AssertionError("a dropped branch needs no new names")
        position = edit.span.end
    yield _original(text, Span(position, span.end))


def _original(text: str, span: Span) -> Traced:
    return Traced(text[span.start : span.end], array("q", range(span.start, span.end)))


def _before(new: str, span: Span) -> Traced:
    """New text that leads up to a kept piece: `elif` for `if`."""
    first = span.end - len(new)
    return Traced(new, array("q", (max(span.start, first + at) for at in range(len(new)))))


def _after(new: str, span: Span) -> Traced:
    """New text in place of old."""
    last = max(span.start, span.end - 1)
    return Traced(new, array("q", (min(last, span.start + at) for at in range(len(new)))))


def _moved(kept: Sequence[Traced], hole: Hole) -> Iterator[Traced]:
    """Lines moved to the left or right."""
    before = "".join(piece.text for piece in kept)
    origins = array("q")
    for piece in kept:
        origins.extend(piece.origins)
    after = shifted(before, hole.indent, first_line=hole.first_line)
    position = 0
    for old, new in zip(lines_of(before), lines_of(after), strict=True):
        end = position + len(old)
        if len(new) > len(old):
            yield Traced(
                new[: len(new) - len(old)],
                array("q", origins[position : position + 1]) * (len(new) - len(old)),
            )
        yield Traced(new[-len(old) :], origins[end - min(len(old), len(new)) : end])
        position = end


def composed(inner: Origins[int], outer: Origins[int]) -> Origins[int]:
    """The record of a text whose edits were applied to a text that has a record itself."""
    return array("q", (outer[min(at, len(outer) - 1)] for at in inner))
