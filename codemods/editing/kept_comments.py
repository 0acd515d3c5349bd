"""Comments in what an edit replaces: they go before the statement, where the edit does not keep them."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator, Sequence

from codemods.analysis.module import Module
from codemods.editing.apply import replaces
from codemods.editing.code import insert_before
from codemods.editing.removal import named_comment
from codemods.model import Edit, Span


def kept_comments(module: Module, edits: Sequence[Edit]) -> list[Edit]:
    """Edits of a file that put back the comments which others would do away with.

    Args:
        edits: all of the file's; what is deleted whole takes its comments along.
    """
    written = [part for edit in edits for part in edit.code if isinstance(part, str) and "#" in part]
    replacing = [e for e in edits if e.code and "#" in module.text[e.span.start : e.span.end]]
    found: dict[ast.stmt, list[str]] = {}
    for span, comment in _comments(module.text) if replacing else ():
        words = comment.lstrip("#").strip()
        if not any(replaces(edit, span) for edit in replacing) or not named_comment("", comment):
            continue
        if any(words in text for text in written):
            continue
        statement = _statement_at(module, span.start)
        if statement is not None:
            found.setdefault(statement, []).append(comment)
    return [insert_before(module, statement, ("\n".join(lines),)) for statement, lines in found.items()]


def _comments(text: str) -> Iterator[tuple[Span, str]]:
    """Where comments stand, and their text."""
    starts = [0]
    for line in io.StringIO(text, newline=""):
        starts.append(starts[-1] + len(line))
    try:
        for token in tokenize.generate_tokens(io.StringIO(text, newline="").readline):
            if token.type == tokenize.COMMENT:
                start = starts[token.start[0] - 1] + token.start[1]
                yield Span(start, start + len(token.string)), token.string
    except tokenize.TokenError:
        return


def _statement_at(module: Module, position: int) -> ast.stmt | None:
    """The innermost statement around a position."""
    around = [
        node
        for node in ast.walk(module.tree)
        if isinstance(node, ast.stmt) and module.span(node).start <= position < module.span(node).end
    ]
    return min(around, key=lambda node: module.span(node).end - module.span(node).start, default=None)
