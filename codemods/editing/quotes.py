"""Strings in new code that stands in an f-string: Python before 3.12 allows no quote there that the f-string
itself has."""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import replace

from codemods.analysis.module import Module
from codemods.model import Edit, Part, Span


def in_other_quotes(module: Module, edits: Sequence[Edit]) -> list[Edit]:
    """The edits, strings within f-strings in double quotes changed to single ones."""
    outer = list(_double_quoted(module)) if any(map(_has_string, edits)) else []
    return [_requoted(e) if any(span.holds(e.span) for span in outer) else e for e in edits]


def _has_string(edit: Edit) -> bool:
    return any(isinstance(part, str) and '"' in part for part in edit.code)


def _requoted(edit: Edit) -> Edit:
    return replace(edit, code=tuple(map(_with_single_quotes, edit.code)))


def _with_single_quotes(part: Part) -> Part:
    return part.replace('"', "'") if isinstance(part, str) and "'" not in part else part


def _double_quoted(module: Module) -> Iterator[Span]:
    """The f-strings in plain double quotes; of those that stand side by side each for itself."""
    for string in module.nodes(ast.JoinedStr):
        whole = module.span(string)
        text = module.text[whole.start : whole.end]
        starts = [whole.start, *(whole.start + at + 1 for at, c in enumerate(text) if c == "\n")]
        for opening, first, last in _strings(text):
            quotes = opening.lstrip("rRfFbBuU")
            if quotes.startswith('"') and not quotes.startswith('"""'):
                yield Span(_offset(starts, first), _offset(starts, last))


def _strings(text: str) -> Iterator[tuple[str, tuple[int, int], tuple[int, int]]]:
    """The outermost strings of an expression: opening and what follows, first and last position."""
    opened: list[tokenize.TokenInfo] = []
    for token in tokenize.generate_tokens(io.StringIO(f"({text})").readline):
        if token.type == tokenize.STRING and not opened:
            yield token.string, token.start, token.end
        elif sys.version_info >= (3, 12) and token.type == tokenize.FSTRING_START:
            opened.append(token)
        elif sys.version_info >= (3, 12) and token.type == tokenize.FSTRING_END:
            first = opened.pop()
            if not opened:
                yield first.string, first.start, token.end


def _offset(starts: Sequence[int], at: tuple[int, int]) -> int:
    line, column = at
    return starts[line - 1] + column - (1 if line == 1 else 0)
