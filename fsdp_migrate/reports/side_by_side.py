"""Two versions of a file as rows of a side-by-side diff. Pure: no markup here."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass

CONTEXT = 3
_LINE_END = re.compile(r"\r\n|\r|\n")
_WORDS = re.compile(r"\w+|\s+|.")


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a line; `differs` marks what the other side does not have."""

    text: str
    differs: bool = False


@dataclass(frozen=True, slots=True)
class Side:
    """One half of a row: line number from 1, and its pieces."""

    number: int
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """One row: both halves where the line stayed or was replaced, one where it went or came."""

    old: Side | None
    new: Side | None

    @property
    def is_same(self) -> bool:
        """Whether the line stayed as it was."""
        return (
            self.old is not None
            and self.new is not None
            and not any(piece.differs for piece in (*self.old.pieces, *self.new.pieces))
        )


@dataclass(frozen=True, slots=True)
class Hunk:
    """Rows that stand together, and the old lines [first, last] they cover (last < first: none)."""

    rows: tuple[Row, ...]
    first: int
    last: int


def hunks(before: str | None, after: str) -> list[Hunk]:
    """What differs between two texts, with lines of context.

    Args:
        before: None for a file that did not exist.
    """
    old = _lines(before) if before is not None else []
    new = _lines(after)
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=len(old) > 5000)
    found = []
    for group in matcher.get_grouped_opcodes(CONTEXT):
        rows: list[Row] = []
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                rows += [_same(i, old[i], j) for i, j in zip(range(i1, i2), range(j1, j2), strict=True)]
            else:
                rows += _changed(old, new, range(i1, i2), range(j1, j2))
        found.append(Hunk(tuple(rows), group[0][1] + 1, group[-1][2]))
    return found


def _lines(text: str) -> list[str]:
    lines = _LINE_END.split(text)
    return lines[:-1] if lines and not lines[-1] else lines


def _same(i: int, text: str, j: int) -> Row:
    return Row(Side(i + 1, (Piece(text),)), Side(j + 1, (Piece(text),)))


def _changed(old: Sequence[str], new: Sequence[str], gone: range, come: range) -> list[Row]:
    rows = []
    for offset in range(max(len(gone), len(come))):
        i = gone[offset] if offset < len(gone) else None
        j = come[offset] if offset < len(come) else None
        if i is not None and j is not None:
            left, right = _word_by_word(old[i], new[j])
            rows.append(Row(Side(i + 1, left), Side(j + 1, right)))
        elif i is not None:
            rows.append(Row(Side(i + 1, (Piece(old[i], True),)), None))
        elif j is not None:
            rows.append(Row(None, Side(j + 1, (Piece(new[j], True),))))
    return rows


def _word_by_word(old: str, new: str) -> tuple[tuple[Piece, ...], tuple[Piece, ...]]:
    """Pieces of two lines; wholly different where little is shared, which reads better than confetti."""
    a, b = _WORDS.findall(old), _WORDS.findall(new)
    matcher = difflib.SequenceMatcher(None, a, b, autojunk=False)
    if matcher.quick_ratio() < 0.4 or matcher.ratio() < 0.4:
        return (Piece(old, True),), (Piece(new, True),)
    left: list[Piece] = []
    right: list[Piece] = []
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        differs = tag != "equal"
        if i2 > i1:
            left.append(Piece("".join(a[i1:i2]), differs))
        if j2 > j1:
            right.append(Piece("".join(b[j1:j2]), differs))
    if not any(piece.differs for piece in (*left, *right)):
        return (Piece(old, True),), (Piece(new, True),)  # only the line ending differs
    return tuple(left), tuple(right)
