"""Lists and dicts that are filled bit by bit: `groups.append({"params": decay})`, `known[name] = parameter`.
Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.analysis.module import Module

FILLS = frozenset({"append", "extend", "add", "insert", "update", "setdefault", "appendleft"})
"""Methods that put their arguments into a container."""


def filled(node: ast.AST, child: ast.AST) -> Iterator[ast.Name]:
    """The names of containers that a call or an assignment puts one of its parts into."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name() as name, attr=method)) if method in FILLS:
            if child is not node.func:
                yield name
        case ast.Assign(value=value, targets=targets) if value is child:
            for target in targets:
                container: ast.expr = target
                while isinstance(container, ast.Subscript):
                    container = container.value
                if isinstance(container, ast.Name) and container is not target:
                    yield container


def fills_of(module: Module, name: ast.Name) -> list[ast.expr]:
    """What a name's container has been given before a place, in the same scope."""
    found = module.scope_of(name).lookup(name.id)
    if found is None:
        return []
    end = module.span(name).end
    values: list[ast.expr] = []
    for use in module.named(name.id):
        if not isinstance(use, ast.Name) or use is name or module.span(use).start >= end:
            continue
        there = module.scope_of(use).lookup(use.id)
        if there is not None and there[0] is found[0]:
            values += _given(module, use)
    return values


def _given(module: Module, container: ast.expr) -> Iterator[ast.expr]:
    """What the statement or call around one use of a container puts into it."""
    parent = module.parent(container)
    match parent:
        case ast.Subscript(value=inner, ctx=ctx) if inner is container:
            if isinstance(ctx, ast.Store):
                statement = module.parent(parent)
                if isinstance(statement, ast.Assign):
                    yield statement.value
            else:
                yield from _given(module, parent)
        case ast.Attribute(attr=method) if method in FILLS:
            call = module.parent(parent)
            if isinstance(call, ast.Call) and call.func is parent:
                yield from (*call.args, *(k.value for k in call.keywords))
