"""Python statements as lines of leaves: tokens with what a formatter asks about them."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass

_OPENING, _CLOSING = "([{", ")]}"
COMPREHENSION, COMMA, _TERNARY, _LOGIC, _COMPARISON, _SUM, _PRODUCT = 20, 18, 16, 14, 10, 5, 4
_HEADS = re.compile(r"(async def|def|class|from)\b")
_COMPARISONS = frozenset({"==", "!=", "<", ">", "<=", ">=", "in", "is", "not"})


@dataclass(slots=True)
class Leaf:
    """One token of a logical line.

    Attributes:
        text: empty for a parenthesis that is only written where the line is split at it.
        space: white space before it on one line.
        depth: number of brackets around it.
        strength: of the operator that a line may be split at, 0 if none.
    """

    text: str
    space: str
    depth: int = 0
    strength: int = 0
    opens: bool = False
    closes: bool = False


Line = list[Leaf]


def logical_lines(text: str) -> Iterator[str | tuple[int, Line, str]]:
    """Lines as they stand (blank, comments, docstrings), and statements: depth, leaves, comment behind."""
    rows = text.split("\n")[:-1]
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    at, place = 0, 0
    while place < len(tokens):
        if tokens[place].type in _NO_CODE:
            place += 1
            continue
        end = place
        while tokens[end].type != tokenize.NEWLINE and end + 1 < len(tokens):
            end += 1
        first, last = tokens[place].start[0] - 1, tokens[end].start[0] - 1
        if tokens[place].type == tokenize.ENDMARKER:
            break
        yield from rows[at:first]
        code = [t for t in tokens[place:end] if t.type not in _NO_CODE]
        if code[0].string.startswith(('"""', "'''")):
            yield from rows[first : last + 1]
        else:
            comments = [t.string for t in tokens[place:end] if t.type == tokenize.COMMENT]
            yield tokens[place].start[1] // 4, _leaves(code), "".join(f"  {c}" for c in comments)
        at, place = last + 1, end + 1
    yield from rows[at:]


_NO_CODE = frozenset({tokenize.INDENT, tokenize.DEDENT, tokenize.NL, tokenize.COMMENT, tokenize.NEWLINE})


def _leaves(tokens: list[tokenize.TokenInfo]) -> Line:
    leaves: Line = []
    for number, token in enumerate(tokens):
        before = tokens[number - 1] if number else None
        if token.string == "," and _is_for_split_lines(tokens, number):
            continue
        space = ""
        if before is not None:
            on_line = before.end[0] == token.start[0]
            space = " " * (token.start[1] - before.end[1]) if on_line else " "
            if not on_line and (before.string in tuple(_OPENING) or token.string in tuple(_CLOSING)):
                space = ""
        leaves.append(Leaf(token.string, space))
    if leaves[0].text == "from":
        leaves = [leaf for leaf in leaves if leaf.text not in ("(", ")")]
        leaves[position(leaves, "import") + 1].space = " "
        return leaves
    return _measured(_with_optional_parentheses(_without_redundant(leaves)))


def _is_for_split_lines(tokens: list[tokenize.TokenInfo], at: int) -> bool:
    """Whether a comma stands only because its brackets are split over lines; parameters stay split."""
    if at + 1 == len(tokens) or tokens[at + 1].string not in tuple(_CLOSING):
        return False
    if tokens[at + 1].start[0] == tokens[at].end[0]:
        return False
    depth, commas = 1, 0
    for number in range(at - 1, -1, -1):
        text = tokens[number].string
        depth += (text in tuple(_CLOSING)) - (text in tuple(_OPENING))
        commas += depth == 1 and text == ","
        if depth == 0:
            before = tokens[number - 1].string if number else ""
            is_tuple = text == "(" and not (before.isidentifier() or before in tuple(_CLOSING))
            is_parameters = tokens[0].string == "def" and number == 2
            return not (is_parameters and commas) and not (is_tuple and not commas)
    return True


def _without_redundant(leaves: Line) -> Line:
    """Without parentheses around a whole right-hand side, test or returned value."""
    start = _value_start(leaves)
    end = len(leaves) - (1 if leaves[-1].text == ":" else 0)
    if start is None or leaves[start].text != "(" or leaves[end - 1].text != ")":
        return leaves
    depth, commas = 0, False
    for number in range(start, end):
        depth += (leaves[number].text in tuple(_OPENING)) - (leaves[number].text in tuple(_CLOSING))
        commas = commas or (depth == 1 and leaves[number].text in (",", "for"))
        if depth == 0 and number < end - 1:
            return leaves
    if commas or end - start < 3:
        return leaves
    leaves[start + 1].space = leaves[start].space
    return [*leaves[:start], *leaves[start + 1 : end - 1], *leaves[end:]]


def _value_start(leaves: Line) -> int | None:
    """Where the value of an assignment, a return or a test starts."""
    if _HEADS.match(leaves[0].text):
        return None
    depth = 0
    for number, leaf in enumerate(leaves):
        depth += (leaf.text in tuple(_OPENING)) - (leaf.text in tuple(_CLOSING))
        if depth == 0 and re.fullmatch(r"[-+*/|&]?=", leaf.text):
            return number + 1
    if leaves[0].text in ("if", "elif", "while", "return", "assert") and len(leaves) > 1:
        return 1
    if leaves[0].text == "for":
        return position(leaves, "in") + 1
    return None


def _with_optional_parentheses(leaves: Line) -> Line:
    start = _value_start(leaves)
    if start is None or start >= len(leaves):
        return leaves
    end = len(leaves) - (1 if leaves[-1].text == ":" else 0)
    opening = Leaf("", leaves[start].space, opens=True)
    leaves[start].space = ""
    return [*leaves[:start], opening, *leaves[start:end], Leaf("", "", closes=True), *leaves[end:]]


def _measured(leaves: Line) -> Line:
    """Depths and strengths filled in."""
    depth = 0
    loops: list[int] = []
    lambdas: list[int] = []
    for number, leaf in enumerate(leaves):
        leaf.opens = leaf.opens or leaf.text in tuple(_OPENING)
        leaf.closes = leaf.closes or leaf.text in tuple(_CLOSING)
        if leaf.closes:
            depth -= 1
        leaf.depth = depth
        before = leaves[number - 1] if number else None
        if leaf.text == "lambda":
            lambdas.append(depth)
        elif leaf.text == ":" and lambdas and lambdas[-1] == depth:
            lambdas.pop()
        elif not (lambdas and lambdas[-1] == depth):
            leaf.strength = _strength(leaf, before, depth, loops)
        if leaf.opens:
            depth += 1
    return leaves


def _strength(leaf: Leaf, before: Leaf | None, depth: int, loops: list[int]) -> int:
    text = leaf.text
    if before is None:
        return 0
    if text == ",":
        return COMMA
    if text == "for" and depth:
        loops.append(depth)
        return COMPREHENSION
    if text == "in" and loops and loops[-1] == depth:
        loops[-1] = -depth  # this `in` belongs to the `for`
        return 0
    if text == "if" and loops and loops[-1] == -depth:
        return COMPREHENSION
    if text in ("if", "else"):
        return _TERNARY
    if text in ("and", "or"):
        return _LOGIC
    if text in _COMPARISONS and before.text not in ("is", "not") and not _starts_operand(before):
        return _COMPARISON
    if _starts_operand(before) or before.opens or before.text in ("=", ",", "return", ""):
        return 0
    if text in ("+", "-", "|"):
        return _SUM
    return _PRODUCT if text in ("*", "/", "//", "%", "@") else 0


def _starts_operand(before: Leaf) -> bool:
    return before.text in ("and", "or", "if", "else", "not", "in", ",", "=") or before.opens


def position(line: Line, text: str) -> int:
    return next(number for number, leaf in enumerate(line) if leaf.text == text)
