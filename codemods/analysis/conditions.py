"""The conditions under which a place is reached. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from codemods.analysis.module import Module

LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)
"""Statements behind which the rest of a block is not reached."""
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def leaves(body: Sequence[ast.stmt]) -> bool:
    """Whether what stands behind a block is not reached through it: its last statement jumps, itself or on
    every way through it."""
    match body[-1]:
        case ast.With() | ast.AsyncWith() as block:
            return leaves(block.body)
        case ast.If(orelse=[_, *_]) as branch:
            return leaves(branch.body) and leaves(branch.orelse)
        case last:
            return isinstance(last, LEAVES)


def conditions(
    module: Module, node: ast.AST, *, beyond_function: bool = False
) -> Iterator[tuple[ast.expr, bool]]:
    """The tests that decide whether a place is reached, and whether they hold there, without their `not`.

    Args:
        beyond_function: those around the function too, which held when it was defined.
    """
    child, is_within = node, True
    for parent in module.ancestors(node):
        if isinstance(parent, ast.If | ast.IfExp) and child is not parent.test:
            body = parent.body if isinstance(parent.body, list) else [parent.body]
            yield _positive(parent.test, any(child is part for part in body))
        for branch in _branches(module, child) if is_within else ():
            if leaves(branch.body):
                yield _positive(branch.test, False)
        is_within = is_within and not isinstance(parent, _FUNCTIONS)
        if not is_within and not beyond_function:
            return
        child = parent


def decided_by(test: ast.expr, holds: bool) -> Iterator[tuple[ast.expr, bool]]:
    """The tests whose outcome follows from that of a condition: all of an `and` that holds, all of an `or`
    that fails; without their `not`."""
    test, holds = _positive(test, holds)
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) is holds:
        for value in test.values:
            yield from decided_by(value, holds)
    else:
        yield test, holds


def branches_before(module: Module, node: ast.AST) -> Iterator[ast.If]:
    """The `if` statements before a place in the blocks around it, within its function."""
    child = node
    for parent in module.ancestors(node):
        yield from _branches(module, child)
        if isinstance(parent, _FUNCTIONS):
            return
        child = parent


def _branches(module: Module, child: ast.AST) -> Iterator[ast.If]:
    """The `if` statements of a block before one of its statements."""
    for statement in module.block(child) if isinstance(child, ast.stmt | ast.ExceptHandler) else ():
        if statement is child:
            return
        if isinstance(statement, ast.If):
            yield statement


def _positive(test: ast.expr, holds: bool) -> tuple[ast.expr, bool]:
    while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test, holds = test.operand, not holds
    return test, holds


def are_apart(module: Module, one: ast.AST, other: ast.AST) -> bool:
    """Whether two places are in different branches of an `if`: no run comes by both on one way."""
    around = {id(parent) for parent in (other, *module.ancestors(other))}
    within: ast.AST = one
    for parent in module.ancestors(one):
        if isinstance(parent, ast.If) and id(parent) in around:
            mine = parent.body if within in parent.body else parent.orelse
            others = parent.orelse if mine is parent.body else parent.body
            return any(id(statement) in around for statement in others)
        within = parent
    return False
