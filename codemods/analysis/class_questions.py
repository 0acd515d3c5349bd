"""What is asked for its class on the way to a place, by `isinstance` and by `match`. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.analysis.conditions import conditions, decided_by
from codemods.analysis.module import Module


def asks_for_classes(module: Module) -> bool:
    """Whether a file can hold such a question."""
    return "isinstance" in module.text or bool(module.nodes(ast.Match))


def questions(module: Module, node: ast.AST) -> Iterator[tuple[ast.expr, list[ast.expr], bool]]:
    """What is asked for its class on the way to a place, the classes, and the answer."""
    for whole in conditions(module, node):
        for test in decided_by(*whole):
            match test:
                case ast.Call(func=ast.Name(id="isinstance"), args=[subject, classes]), holds:
                    yield subject, list(classes_of(classes)), holds
    child: ast.AST = node
    for parent in module.ancestors(node):
        if isinstance(parent, ast.Match) and isinstance(child, ast.match_case):
            at = parent.cases.index(child)
            for case in parent.cases[: at + 1]:
                named = _classes_matched(case.pattern)
                # One that a guard holds back may be of the classes in a later case.
                if named and (case is child or case.guard is None):
                    yield parent.subject, named, case is child
        elif isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            return
        child = parent


def _classes_matched(pattern: ast.pattern) -> list[ast.expr]:
    """The classes of `case A():`, `case A() | B():`, `case A() as x:`; none where more is asked."""
    match pattern:
        case ast.MatchClass(cls=one, patterns=[], kwd_patterns=[]):
            return [one]
        case ast.MatchAs(pattern=ast.pattern() as inner):
            return _classes_matched(inner)
        case ast.MatchOr(patterns=patterns):
            found = [_classes_matched(part) for part in patterns]
            return [one for classes in found for one in classes] if all(found) else []
    return []


def classes_of(node: ast.expr) -> Iterator[ast.expr]:
    """The classes of `isinstance`'s second argument: one, a tuple, or a union."""
    if isinstance(node, ast.Tuple):
        for element in node.elts:
            yield from classes_of(element)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        yield from classes_of(node.left)
        yield from classes_of(node.right)
    else:
        yield node
