"""Lays the helper module's text out for a line length, as the repository's formatter would.

Each statement is joined into one line and, where it is too long, split again at its brackets: the last pair
that makes the first line short enough, then its contents at the weakest operator. That is what black and ruff
do; the texts of the helper module keep to what is written here (no chains of calls, no comment behind code).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from codemods.editing.helper_leaves import COMMA, COMPREHENSION, Leaf, Line, logical_lines, position
from codemods.torch_names import PUBLIC_FROM


@dataclass(frozen=True, slots=True)
class Style:
    """How a repository writes its code.

    Attributes:
        width: columns of a line.
        indent: one step of indentation.
        quote: of strings that are not docstrings.
        python: the oldest Python it runs on.
        torch: the oldest torch it must run on.
    """

    width: int = 88
    indent: str = "    "
    quote: str = '"'
    python: tuple[int, int] = (3, 10)
    torch: tuple[int, int] = PUBLIC_FROM


def laid_out(text: str, style: Style) -> str:
    """The same module in a repository's style, as far as its lines can be split.

    Args:
        text: lines indented by four columns, strings in double quotes.
    """
    found: list[str] = []
    step = 4 if style.indent == "\t" else len(style.indent)
    splitter = _Splitter(style.width, step)
    for line in logical_lines(text):
        if isinstance(line, str):
            found.append(_reindented(line, style.indent))
            continue
        start, leaves, comment = line
        if style.quote == "'":
            leaves = [_requoted(leaf) for leaf in leaves]
        found += [style.indent * depth + row for depth, row in splitter.split(leaves, start)]
        found[-1] += comment
    return "\n".join(found) + "\n"


def _reindented(row: str, indent: str) -> str:
    """A line of a docstring or a comment."""
    rest = row.lstrip(" ")
    depth, more = divmod(len(row) - len(rest), 4)
    return indent * depth + " " * more + rest if rest else rest


def _requoted(leaf: Leaf) -> Leaf:
    if leaf.text.startswith('"') and not leaf.text.startswith('"""') and "'" not in leaf.text:
        leaf.text = "'" + leaf.text[1:-1] + "'"
    return leaf


@dataclass(slots=True)
class _Splitter:
    """Splits logical lines.

    Attributes:
        width: columns of a line.
        step: columns of one indentation.
    """

    width: int
    step: int

    def split(self, line: Line, depth: int, *, inside: bool = False) -> list[tuple[int, str]]:
        """Rows, each with its indentation.

        Args:
            inside: the line is what stands between brackets.
        """
        text = _text(line)
        pair = _first_pair(line) if line[0].text in ("def", "class") else None
        stays_split = pair is not None and line[pair[1] - 1].text == ","
        if self._fits(text, depth) and not stays_split:
            return [(depth, text)]
        if pair is not None:
            return self._at(line, depth, pair) or [(depth, text)]
        if line[0].text == "from":
            return _import_rows(line, depth)
        if inside:
            inner = line[1:-1] if line[-1].text == "," else line[1:]
            strongest = max((leaf.strength for leaf in inner if leaf.depth == _floor(line)), default=0)
            if strongest:
                return self._at_operators(line, depth, strongest)
        return self._at_brackets(line, depth, text)

    def _fits(self, text: str, depth: int) -> bool:
        return depth * self.step + len(text) <= self.width

    def _at_brackets(self, line: Line, depth: int, text: str) -> list[tuple[int, str]]:
        """Split at the last pair of brackets, or at an earlier one where that makes the first line fit."""
        pairs = _trailing_pairs(line)
        for number, pair in enumerate(pairs):
            is_optional = not line[pair[0]].text
            if is_optional and pairs[number + 1 :] and self._can_omit(line, depth, pairs[number + 1]):
                continue
            rows = self._at(line, depth, pair)
            if rows is not None:
                return rows
        return [(depth, text)]

    def _can_omit(self, line: Line, depth: int, pair: tuple[int, int]) -> bool:
        """Whether the value is split at its own last brackets and needs no parentheses around it."""
        opening, closing = next((o, c) for o, c in _trailing_pairs(line) if not line[o].text)
        body = line[opening + 1 : closing]
        floor = line[opening].depth + 1
        at_floor = [leaf.strength for leaf in body if leaf.depth == floor and leaf.strength]
        if at_floor and at_floor.count(max(at_floor)) > 1:
            return False
        if pair[1] != closing - 1 or pair[1] == pair[0] + 1:
            return False
        head = _text(line[: pair[0] + 1])
        if not self._fits(head, depth):
            return False
        if at_floor and not self._fits(_text(line[pair[0] + 1 : pair[1]]), depth + 1):
            return _splits(line[pair[0] + 1 : pair[1]])
        return True

    def _at(self, line: Line, depth: int, pair: tuple[int, int] | None) -> list[tuple[int, str]] | None:
        """The line up to a bracket, what stands between, the rest."""
        if pair is None:
            return None
        opening, closing = pair
        if closing == opening + 1:
            return None
        head, body, tail = line[: opening + 1], line[opening + 1 : closing], line[closing:]
        if not line[opening].text:
            head = [*head[:-1], Leaf("(", head[-1].space)]
            tail = [Leaf(")", ""), *tail[1:]]
        rows = self._body(line, opening, body, depth + 1)
        return [*self.split(head, depth), *rows, *self.split(tail, depth)]

    def _body(self, line: Line, opening: int, body: Line, depth: int) -> list[tuple[int, str]]:
        floor = _floor(body)
        commas = any(leaf.text == "," and leaf.depth == floor for leaf in body)
        stays_split = line[0].text == "def" and body[-1].text == ","
        if stays_split or (commas and _is_display(line, opening) and not _is_comprehension(body, floor)):
            return self._at_operators(body, depth, COMMA)
        if line[0].text == "def" and not commas:
            body = [*body, Leaf(",", "", floor)]
        return self.split(body, depth, inside=True)

    def _at_operators(self, line: Line, depth: int, strength: int) -> list[tuple[int, str]]:
        """One row for each operand."""
        floor = _floor(line)
        rows: list[tuple[int, str]] = []
        part: Line = []
        for leaf in line:
            is_here = leaf.depth == floor and leaf.strength == strength
            if is_here and strength != COMMA and part:
                rows += self.split(part, depth, inside=True)
                part = []
            part.append(leaf)
            if is_here and strength == COMMA:
                rows += self.split(part, depth, inside=True)
                part = []
        if part:
            if strength == COMMA and part[-1].text != ",":
                part = [*part, Leaf(",", "", floor)]
            rows += self.split(part, depth, inside=True)
        return rows


def _text(line: Line) -> str:
    return "".join((leaf.space if number else "") + leaf.text for number, leaf in enumerate(line))


def _floor(line: Line) -> int:
    return min((leaf.depth for leaf in line), default=0)


def _splits(body: Line) -> bool:
    """Whether there is anything in a line to split it at."""
    return any(leaf.strength or leaf.opens for leaf in body)


def _is_display(line: Line, opening: int) -> bool:
    """Whether a bracket starts a tuple, list, set or dict, rather than a call or a subscript."""
    if not line[opening].text:
        return False
    before = line[opening - 1] if opening else None
    if before is None or not before.text:
        return True
    is_value = re.fullmatch(r"[\w\"']+|[\])}]", before.text[-1]) is not None
    return not is_value or before.text in ("return", "in", "and", "or", "not", "if", "else", "yield")


def _is_comprehension(body: Line, floor: int) -> bool:
    return any(leaf.depth == floor and leaf.strength == COMPREHENSION for leaf in body)


def _first_pair(line: Line) -> tuple[int, int] | None:
    opening = next((n for n, leaf in enumerate(line) if leaf.text == "("), None)
    closing = _match(line, opening) if opening is not None else None
    return (opening, closing) if opening is not None and closing is not None else None


def _match(line: Line, opening: int) -> int | None:
    """Where a bracket closes; None where the line ends before."""
    depth = line[opening].depth
    return next((n for n in range(opening + 1, len(line)) if line[n].closes and line[n].depth == depth), None)


def _trailing_pairs(line: Line) -> list[tuple[int, int]]:
    """Pairs of brackets at the end of a line, the outermost of the last ones first."""
    found: list[tuple[int, int]] = []
    end = len(line)
    while True:
        closing = next((n for n in range(end - 1, -1, -1) if line[n].closes), None)
        if closing is None:
            return found
        opening = next(
            n for n in range(closing - 1, -1, -1) if line[n].opens and line[n].depth == line[closing].depth
        )
        found.append((opening, closing))
        if not line[opening].text:
            end = closing  # then the last brackets within
            continue
        end = opening


def _import_rows(line: Line, depth: int) -> list[tuple[int, str]]:
    """`from x import (` with a name on each row."""
    at = position(line, "import")
    names = _text(line[at + 1 :]).split(", ")
    head = _text(line[: at + 1])
    return [(depth, f"{head} ("), *((depth + 1, f"{name.strip()},") for name in names), (depth, ")")]
