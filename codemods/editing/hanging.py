"""Calls whose arguments are aligned under the first one, and no longer fit: one argument a line instead."""

from __future__ import annotations

import ast
import itertools

_STEP = 4


def with_hanging_arguments(lines: list[str], tree: ast.Module, long: set[int], commented: set[int]) -> bool:
    """Write such calls anew, in place.

    Args:
        lines: of the text that `tree` was read from; a call's first line gets all of it, the others nothing.
        long: numbers of the lines that are new and too long.
        commented: numbers of lines with a comment; calls with one stay.

    Returns:
        Whether something was written; the others' line numbers are as they were.
    """
    written: set[int] = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not _is_aligned(node):
            continue
        numbers = set(range(node.lineno, (node.end_lineno or 0) + 1))
        if not numbers & long or numbers & (commented | written):
            continue
        if not all(lines[number - 1].isascii() for number in numbers) or not _is_plain(lines, node):
            continue
        new = _hanging(lines, node)
        for number in numbers:
            lines[number - 1] = ""
        lines[node.lineno - 1] = new
        written |= numbers
    return bool(written)


def _items(call: ast.Call) -> list[ast.expr | ast.keyword]:
    return sorted([*call.args, *call.keywords], key=lambda item: (item.lineno, item.col_offset))


def _is_aligned(call: ast.Call) -> bool:
    """Whether arguments stand behind the bracket and below the first of them, the closing one after the
    last."""
    items = _items(call)
    if len(items) < 2 or any(item.lineno != item.end_lineno for item in items):
        return False
    first, last = items[0], items[-1]
    if call.func.end_lineno != first.lineno or first.lineno == last.lineno or call.lineno != first.lineno:
        return False
    heads = {item.lineno: item for item in reversed(items)}
    return call.end_lineno == last.lineno and all(h.col_offset == first.col_offset for h in heads.values())


def _is_plain(lines: list[str], call: ast.Call) -> bool:
    """Whether nothing but commas and blanks stands between the arguments: no parentheses of their own."""
    items = _items(call)
    bounds = [(item.lineno, item.col_offset, item.end_col_offset or 0) for item in items]
    gaps = []
    for (line, _, end), (below, start, _) in itertools.pairwise(bounds):
        same = line == below
        gaps.append(lines[line - 1][end:start] if same else lines[line - 1][end:] + lines[below - 1][:start])
    opening = lines[call.lineno - 1][call.func.end_col_offset : bounds[0][1]]
    closing = lines[bounds[-1][0] - 1][bounds[-1][2] : call.end_col_offset]
    is_closed = closing.replace(" ", "") in (")", ",)")
    return opening.strip() == "(" and is_closed and all(gap.strip() == "," for gap in gaps)


def _hanging(lines: list[str], call: ast.Call) -> str:
    items = _items(call)
    top, bottom = lines[call.lineno - 1], lines[(call.end_lineno or 0) - 1]
    indent = top[: len(top) - len(top.lstrip())]
    texts = [lines[item.lineno - 1][item.col_offset : item.end_col_offset] for item in items]
    step = "\t" if indent.endswith("\t") else " " * _STEP
    inner = "".join(f"{indent}{step}{text},\n" for text in texts)
    return f"{top[: items[0].col_offset].rstrip()}\n{inner}{indent}){bottom[call.end_col_offset :]}"
