"""Text positions for dropping branches: whole statements with their comments, blocks moved to the left."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from codemods.analysis.module import Module
from codemods.editing.code import stands_alone
from codemods.model import Edit, Hole, Span


def is_elif(module: Module, node: ast.AST) -> bool:
    return isinstance(node, ast.If) and module.text.startswith("elif", module.span(node).start)


def removed(module: Module, first: ast.stmt, last: ast.stmt) -> Edit:
    """Remove statements that follow each other, comments that speak of them, and a blank line too many."""
    block = module.block(first)
    if len(block) == block.index(last) - block.index(first) + 1 and not isinstance(
        module.parent(first), ast.Module
    ):
        return Edit(module.path, Span(module.span(first).start, module.span(last).end), ("pass",))
    if not (stands_alone(module, first) and stands_alone(module, last)):
        return Edit(module.path, Span(module.span(first).start, module.span(last).end), ("pass",))
    start, end = module.line_start(module.span(first).start), module.line_end(module.span(last).end)
    ends_paragraph = not module.text[end : module.line_end(end)].strip() or last is block[-1]
    if ends_paragraph:
        start = _above_comments(module, start)
    before = _blank_above(module, start)
    if ends_paragraph and before < start:
        opens_block = first is block[0]
        if not opens_block:
            start = before
    elif ends_paragraph and first is block[0]:
        while (
            end < len(module.text)
            and last is not block[-1]
            and not module.text[end : module.line_end(end)].strip()
        ):
            end = module.line_end(end)
    return Edit(module.path, Span(start, end), ())


def _above_comments(module: Module, start: int) -> int:
    """The start of the comment lines directly above a line."""
    indent = len(module.text[start:]) - len(module.text[start:].lstrip(" \t"))
    while start > 0:
        above = module.line_start(start - 1)
        line = module.text[above:start]
        if not line.strip().startswith("#") or len(line) - len(line.lstrip(" \t")) != indent:
            break
        start = above
    return start


def _blank_above(module: Module, start: int) -> int:
    while start > 0 and not module.text[module.line_start(start - 1) : start].strip():
        start = module.line_start(start - 1)
    return start


def kept_block(module: Module, body: Sequence[ast.stmt], at: ast.stmt) -> Hole:
    """A block with its comments, moved to where a statement stands.

    The first line is moved too: the hole starts at the start of a line.
    """
    first, last = body[0], body[-1]
    start = module.line_start(module.span(first).start)
    while start > 0:
        above = module.line_start(start - 1)
        if not module.text[above:start].strip().startswith("#"):
            break
        start = above
    inner = module.span(first).start - module.line_start(module.span(first).start)
    outer = module.span(at).start - module.line_start(module.span(at).start)
    end = module.span(last).end
    rest = module.text[end : module.line_end(end)]
    if rest.strip().startswith("#"):
        end += len(rest.rstrip())
    return Hole(Span(start, end), indent=outer - inner, first_line=True)


def only(module: Module, head: ast.stmt, body: Sequence[ast.stmt], last: ast.stmt) -> Edit | None:
    """One block in place of the statements from `head` to `last`; None where the text does not allow it."""
    if module.line_of(module.span(body[0]).start) == module.line_of(module.span(head).start):
        return None
    if is_elif(module, head) or not stands_alone(module, last) or not stands_alone(module, body[0]):
        return None
    start = module.line_start(module.span(head).start)
    if module.text[start : module.span(head).start].strip():
        return None
    end = module.span(last).end
    rest = module.text[end : module.line_end(end)]
    if rest.strip().startswith("#") and module.span(body[-1]).end != end:
        end += len(rest.rstrip("\r\n"))
    elif rest.strip().startswith("#"):
        end += len(rest.rstrip())
    kept = _without_bare_return(module, body, last)
    return Edit(module.path, Span(start, end), (kept_block(module, kept, head),))


def _without_bare_return(module: Module, body: Sequence[ast.stmt], last: ast.stmt) -> Sequence[ast.stmt]:
    """A `return` without a value at the end of its function is not needed."""
    ends = body[-1]
    if not isinstance(ends, ast.Return) or ends.value is not None or len(body) == 1:
        return body
    parent = module.parent(last)
    is_function = isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef)
    return body[:-1] if is_function and parent.body[-1] is last else body  # type: ignore[union-attr]


def terminates(body: Sequence[ast.stmt]) -> bool:
    """Whether control never reaches the end of a block."""
    if not body:
        return False
    last = body[-1]
    if isinstance(last, ast.Return | ast.Raise | ast.Continue | ast.Break):
        return True
    return isinstance(last, ast.If) and terminates(last.body) and terminates(last.orelse)
