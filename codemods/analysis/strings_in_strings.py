"""Positions of what stands in an f-string within an f-string, which Python before 3.12 gives wrongly.

Where the inner string has several lines, such Pythons forget the column it starts in, and with it those of
what stands in it (`Parser/string_parser.c`, `fstring_compile_expr`; 3.12 tokenizes f-strings). Its lines and
its end are right, and so is everything in a string that stands alone: the inner string is parsed alone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from codemods.analysis.module import Module

_OPENING = re.compile(r"""(?<!\w)[rRfFuU]{0,2}(?=["'])|(?=["'])""")


def mend_positions(module: Module, string: ast.JoinedStr) -> None:
    """Give the nodes of the strings within a string the positions they have.

    Args:
        string: not within another.
    """
    for inner in _next_strings(string):
        alone = _read_alone(module, inner)
        if alone is None:
            continue
        line, column = inner.lineno, inner.col_offset
        for node, at in zip(ast.walk(inner), ast.walk(alone), strict=True):
            if isinstance(node, ast.expr | ast.keyword | ast.arg) and isinstance(at, type(node)):
                node.lineno, node.col_offset = _shifted(at.lineno, at.col_offset, line, column)
                assert at.end_lineno is not None and at.end_col_offset is not None
                end = _shifted(at.end_lineno, at.end_col_offset, line, column)
                node.end_lineno, node.end_col_offset = end
        if isinstance(inner, ast.JoinedStr):
            mend_positions(module, inner)


def _next_strings(string: ast.JoinedStr) -> Iterator[ast.JoinedStr | ast.Constant]:
    """The strings right within a string; a format (`:>{width}`) is no string of its own."""
    waiting: list[ast.AST] = [v for v in string.values if isinstance(v, ast.FormattedValue)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FormattedValue):
            waiting.append(node.value)
            if isinstance(node.format_spec, ast.JoinedStr):
                waiting += [v for v in node.format_spec.values if isinstance(v, ast.FormattedValue)]
        elif isinstance(node, ast.JoinedStr) or (
            isinstance(node, ast.Constant) and node.lineno != node.end_lineno
        ):
            yield node
        else:
            waiting += ast.iter_child_nodes(node)


def _read_alone(module: Module, string: ast.JoinedStr | ast.Constant) -> ast.expr | None:
    """The string parsed from its text in parentheses, with its own start put right, and that of what starts
    with it; None where the text is not found."""
    assert string.end_lineno is not None and string.end_col_offset is not None
    end = module.offset(string.end_lineno, string.end_col_offset)
    start = module.offset(string.lineno, 0)
    meant = ast.dump(string)
    line = module.text[start : module.line_end(start)]
    for opening in _OPENING.finditer(line):
        try:
            alone = ast.parse(f"({module.text[start + opening.start() : end]})", mode="eval").body
        except (SyntaxError, ValueError):
            continue
        if ast.dump(alone) == meant:
            given = string.lineno, string.col_offset
            string.col_offset = len(line[: opening.start()].encode())
            for around in module.ancestors(string):
                if not isinstance(around, ast.expr) or isinstance(around, ast.FormattedValue):
                    break
                if (around.lineno, around.col_offset) == given:
                    around.col_offset = string.col_offset
            return alone
    return None


def _shifted(line: int, column: int, first_line: int, first_column: int) -> tuple[int, int]:
    """A position in `(string)` as one in the file."""
    return first_line + line - 1, column + (first_column - 1 if line == 1 else 0)
