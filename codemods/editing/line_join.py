"""Puts a call back on one line where a rewrite made it short enough, the way black and ruff would.

Only calls of which a line was not in the file before are touched, and none with a trailing comma, which tells
a formatter to leave the items on lines of their own.
"""

from __future__ import annotations

import ast
import re

_LINE_END = re.compile(r"(\r\n|\r|\n)")


def join_short_lines(before: str, after: str, width: int) -> str:
    """The text with calls joined that fit on one line: opening bracket, everything in it, closing bracket on
    a line each.

    Args:
        before: the text before the rewrite.
        after: valid Python.
    """
    old = {line.strip() for line in _LINE_END.split(before)}
    parts = _LINE_END.split(after)
    lines, ends = parts[::2], [*parts[1::2], ""]
    joined = False
    for n in range(len(lines) - 3, -1, -1):
        opening, inside, closing = lines[n : n + 3]
        if opening[-1:] + closing.strip()[:1] not in ("()", "[]", "{}"):
            continue
        if inside.strip().endswith(",") or (opening.strip() in old and inside.strip() in old):
            continue
        one = opening + inside.strip() + closing.strip()
        if len(one) > width or "#" in one or not inside.strip():
            continue
        lines[n : n + 3] = [one]
        ends[n : n + 3] = [ends[n + 2]]
        joined = True
    if not joined:
        return after
    text = "".join(line + end for line, end in zip(lines, ends, strict=True))
    return text if _same(after, text) else after


def _same(one: str, other: str) -> bool:
    """Whether two texts are the same program: no line of a string was taken for code."""
    try:
        return ast.dump(ast.parse(one)) == ast.dump(ast.parse(other))
    except SyntaxError:
        return False
