"""Import statements that go, and what stood around nothing but them: version gates, `else`, `try`."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from codemods.analysis.module import Module


def with_gates(module: Module, going: Iterable[ast.stmt]) -> dict[ast.stmt, ast.stmt]:
    """Each statement that goes -> the outermost statement that goes with it.

    An `if` goes when nothing is left in any of its branches; a `try` when nothing is left in its body and
    its handlers.
    """
    gone = set(going)
    queue = list(gone)
    while queue:
        parent = module.parent(queue.pop())
        if isinstance(parent, ast.If | ast.Try) and parent not in gone and _is_empty(parent, gone):
            if "#" in module.text[module.span(parent).start : module.span(parent).end]:
                continue  # a comment would be lost
            gone.add(parent)
            queue.append(parent)
    return {statement: _outermost(module, statement, gone) for statement in going}


def stand_ins(module: Module, gone: Iterable[tuple[ast.AST, str]]) -> set[ast.stmt]:
    """`FSDP = None` in a handler of the `try`, or the other branch of the `if`, in which a name that goes was
    imported.

    Args:
        gone: import statement and local name.
    """
    found: set[ast.stmt] = set()
    for node, name in gone:
        for parent in module.ancestors(node):
            if isinstance(parent, ast.Try | ast.If):
                handled = [*parent.body, *parent.orelse]
                if isinstance(parent, ast.Try):
                    handled = [s for handler in parent.handlers for s in handler.body]
                found |= {s for s in handled if isinstance(s, ast.Assign) and _stands_in(s, name)}
    return found


def is_gated(module: Module, statement: ast.stmt) -> bool:
    """Whether a statement stands in an `if` or `try` that does nothing but import, one way or another."""
    return outside_gate(module, statement) is not statement


def outside_gate(module: Module, statement: ast.stmt) -> ast.stmt:
    """The outermost such `if` or `try` around a statement; the statement itself outside of any."""
    for parent in module.ancestors(statement):
        if isinstance(parent, ast.If | ast.Try) and _only_imports(parent):
            statement = parent
        elif isinstance(parent, ast.stmt):
            break
    return statement


def _only_imports(gate: ast.If | ast.Try) -> bool:
    parts = [s for s in ast.walk(gate) if isinstance(s, ast.stmt)]
    values = [s.value for s in parts if isinstance(s, ast.Assign)]
    if not all(isinstance(value, ast.Constant | ast.Name | ast.Attribute) for value in values):
        return False
    return (len(gate.orelse) > 0 or isinstance(gate, ast.Try)) and all(
        isinstance(s, ast.Import | ast.ImportFrom | ast.If | ast.Try | ast.Pass | ast.Assign | ast.Raise)
        for s in parts
    )


def removals(module: Module, going: Iterable[ast.stmt]) -> list[tuple[int, int, str]]:
    """Text changes that remove statements: `pass` where a block would be empty, no `else` without a body."""
    gone = set(going)
    changes = []
    for statement in sorted(gone, key=lambda s: module.span(s).start):
        parent, block = module.parent(statement), module.block(statement)
        if isinstance(parent, ast.Module) or any(s not in gone for s in block):
            if not _follows_on(module, statement, block, gone):
                changes.append(_without(module, statement, block, gone))
        elif statement is block[0]:
            changes += _emptied(module, parent, block)
    return changes


def _is_empty(parent: ast.If | ast.Try, gone: set[ast.stmt]) -> bool:
    if any(s not in gone for s in parent.body) or any(s not in gone for s in parent.orelse):
        return False
    if isinstance(parent, ast.If):
        return True
    handled = [s for handler in parent.handlers for s in handler.body]
    return not parent.finalbody and all(s in gone or isinstance(s, ast.Pass) for s in handled)


def _stands_in(statement: ast.Assign, name: str) -> bool:
    is_name = len(statement.targets) == 1 and isinstance(statement.targets[0], ast.Name)
    return is_name and ast.unparse(statement.targets[0]) == name and isinstance(statement.value, ast.Constant)


def _outermost(module: Module, statement: ast.stmt, gone: set[ast.stmt]) -> ast.stmt:
    for parent in module.ancestors(statement):
        if isinstance(parent, ast.stmt):
            if parent not in gone:
                break
            statement = parent
    return statement


def _emptied(module: Module, parent: ast.AST | None, block: list[ast.stmt]) -> list[tuple[int, int, str]]:
    """The changes for a block of which nothing stays."""
    first, last = module.span(block[0]), module.span(block[-1])
    text = module.text
    if isinstance(parent, ast.If | ast.For | ast.While) and block is parent.orelse:
        start = module.line_end(module.span(parent.body[-1]).end)
        end = module.line_end(last.end)
        if "#" not in text[start:end]:
            return [(start, end, "")]
    spans = [module.span(s) for s in block[1:]]
    if ";" in text[first.end : last.end]:
        return [(first.start, last.end, "pass")]
    lines = [(module.line_start(s.start), module.line_end(s.end), "") for s in spans]
    return [(first.start, first.end, "pass"), *lines]


def _has_own_lines(module: Module, statement: ast.stmt) -> bool:
    span = module.span(statement)
    before = module.text[module.line_start(span.start) : span.start]
    return not before.strip() and not module.text[span.end : module.line_end(span.end)].strip()


def _follows_on(module: Module, statement: ast.stmt, siblings: list[ast.stmt], gone: set[ast.stmt]) -> bool:
    """Whether the line above belongs to a statement that goes too, and takes this one along."""
    place = siblings.index(statement)
    if not place or siblings[place - 1] not in gone or isinstance(module.parent(statement), ast.Module):
        return False  # at the top of a file new imports come between those that go
    above = siblings[place - 1]
    adjoins = module.line_end(module.span(above).end) == module.line_start(module.span(statement).start)
    return adjoins and _has_own_lines(module, statement) and _has_own_lines(module, above)


def _without(
    module: Module, statement: ast.stmt, siblings: list[ast.stmt], gone: set[ast.stmt]
) -> tuple[int, int, str]:
    """A statement, and those that go right below it, of a block of which something stays; with the blank
    lines around them in order."""
    span = module.span(statement)
    start, end = module.line_start(span.start), module.line_end(span.end)
    if not _has_own_lines(module, statement):
        if module.text[start : span.start].strip():
            return span.start, span.end, "pass"
        behind = module.text[span.end : end]
        is_comment = behind.lstrip(" \t").startswith("#")  # it stays, where the statement began
        return span.start, span.end + (len(behind) - len(behind.lstrip(" \t")) if is_comment else 0), ""
    rest = siblings[siblings.index(statement) + 1 :]
    while rest and rest[0] in gone and _follows_on(module, rest[0], siblings, gone):
        end = module.line_end(module.span(rest.pop(0)).end)
    following = module.line_end(end) if end < len(module.text) else end
    above = module.text[module.line_start(start - 1) : start] if start else ""
    is_first = all(s in gone for s in siblings[: siblings.index(statement)])
    opens_block = bool(above.strip()) and is_first and above.rstrip().endswith(":")
    if (not above.strip() or opens_block) and following > end and not module.text[end:following].strip():
        later = [s for s in rest if s not in gone]
        if start and not opens_block and later and not isinstance(later[0], ast.Import | ast.ImportFrom):
            start = module.line_start(start - 1)  # the blank lines before the first definition stay
        else:
            end = following  # one blank line is enough where it stood between two
    return start, end, ""
