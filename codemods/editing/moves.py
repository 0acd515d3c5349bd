"""Moving what builds an object, and what it needs, behind a later statement of the same block, or behind a
later item of the same dict or call."""

from __future__ import annotations

import ast
import itertools
from typing import TypeAlias

from codemods.analysis.module import Module
from codemods.analysis.stores import FILLS
from codemods.editing.code import code, delete, insert_after, stands_alone
from codemods.model import Edit, Span

_LISTS = ("parameters", "named_parameters")
_Item: TypeAlias = "list[ast.AST]"
"""A keyword of a call, or key and value of a dict."""
_MOVABLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.For)


def moved_behind(module: Module, first: ast.stmt, wrap: ast.stmt, model: str) -> list[Edit]:
    """Move a statement behind another one, with those that list a model's parameters for it and those after
    it that need what it binds; empty where that is not safe.

    Args:
        wrap: rebinds the model, in the same block or in a branch of a statement of it.
        model: the model's name in the text.
    """
    block = module.block(first)
    target = _within(module, block, wrap)
    if target is None or not isinstance(first, ast.Assign):
        return []
    moving = [*lists_for(block, first, model), first]
    bound = {name for statement in moving for name in names_bound(statement)}
    between = block[block.index(moving[0]) + 1 : block.index(target)]
    for statement in between:
        if _begins_empty(statement) and statement.lineno < first.lineno:
            continue
        if statement not in moving and bound & names_in(statement):
            if not isinstance(statement, ast.Assign) or statement.lineno < first.lineno:
                return []
            moving.append(statement)
            bound |= names_bound(statement)
    staying = [s for s in between if s not in moving]
    needed = {n for s in moving for n in names_in(s)} - bound
    if any(names_bound(s) & needed for s in staying) or bound & names_in(target):
        return []
    if not all(stands_alone(module, s) for s in (*moving, target)):
        return []
    lines = code(
        module,
        "\n".join(f"{{s{i}}}" for i in range(len(moving))),
        **{f"s{i}": s for i, s in enumerate(moving)},
    )
    return [insert_after(module, target, lines), *(delete(module, s) for s in moving)]


def exchanged(module: Module, first: ast.expr, second: ast.expr, owner: ast.expr) -> list[Edit] | None:
    """Exchange the items of a dict, or the keywords of a call, that two calls stand in.

    Args:
        owner: what both are given; empty where another item is given it too.

    Returns:
        None where no dict, call or list builds one and then the other.
    """
    whole = next((n for n in module.ancestors(first) if any(one is second for one in ast.walk(n))), None)
    items: list[_Item] = []
    match whole:
        case ast.Dict():
            if None in whole.keys:
                return []
            items = [[key, value] for key, value in zip(whole.keys, whole.values, strict=True) if key]
        case ast.Call():
            items = [[keyword] for keyword in whole.keywords]
        case ast.Tuple() | ast.List():
            return []
        case _:
            return None
    places = [
        next((i for i, item in enumerate(items) if any(n is node for n in ast.walk(item[-1]))), None)
        for node in (first, second)
    ]
    start, end = places
    if start is None or end is None or start >= end:
        return []
    one, *between, other = items[start : end + 1]
    if any(names_in(owner) & names_in(node) for item in between for node in item):
        return []
    return _in_order(module, [one, *between, other], [other, *between, one])


def _in_order(module: Module, items: list[_Item], wanted: list[_Item]) -> list[Edit]:
    """Write items in another order, with what stands between them as it is; empty where that is a comment."""
    spans = [module.span(node) for item in items for node in item]
    new = [node for item in wanted for node in item]
    gaps = [module.text[a.end : b.start].replace("\r\n", "\n") for a, b in itertools.pairwise(spans)]
    if any("#" in gap for gap in gaps):
        return []
    template = "".join(f"{{n{i}}}{{g{i}}}" for i in range(len(new)))
    nodes = {f"n{i}": node for i, node in enumerate(new)}
    texts = {f"g{i}": gap for i, gap in enumerate([*gaps, ""])}
    return [Edit(module.path, Span(spans[0].start, spans[-1].end), code(module, template, **nodes, **texts))]


def _begins_empty(statement: ast.stmt) -> bool:
    """Whether a statement makes empty lists or dicts and nothing else: what fills them can move behind it."""
    if not isinstance(statement, ast.Assign | ast.AnnAssign) or statement.value is None:
        return False
    value = statement.value
    made = value.elts if isinstance(value, ast.Tuple) else [value]
    return all(ast.unparse(one) in ("[]", "{}") for one in made)


def _within(module: Module, block: list[ast.stmt], wrap: ast.stmt) -> ast.stmt | None:
    """The statement of a block that is, or holds in a branch, another one."""
    for node in (wrap, *module.ancestors(wrap)):
        if isinstance(node, ast.stmt) and node in block:
            return node
        if not isinstance(node, ast.Assign | ast.If | ast.With):
            return None
    return None


def lists_for(block: list[ast.stmt], first: ast.stmt, model: str) -> list[ast.stmt]:
    """The statements before another one that list the model's parameters for it."""
    derived: list[ast.stmt] = []
    tainted: set[str] = set()
    groups = _groups_of(first)
    for statement in block[: block.index(first)]:
        is_group = bool(groups & names_bound(statement)) and _is_given(statement, model)
        if is_group or _lists_parameters(statement, model) or tainted & names_in(statement):
            derived.append(statement)
            tainted |= names_bound(statement)
    needed = names_in(first)
    found: list[ast.stmt] = []
    for statement in reversed(derived):
        if names_bound(statement) & needed and isinstance(statement, _MOVABLE):
            found.append(statement)
            needed = needed | names_in(statement)
    return found[::-1]


def _lists_parameters(statement: ast.stmt, model: str) -> bool:
    return any(
        isinstance(node, ast.Attribute) and node.attr in _LISTS and ast.unparse(node.value) == model
        for node in ast.walk(statement)
    )


def _groups_of(statement: ast.stmt) -> set[str]:
    """The names in what an optimizer is built from."""
    found: set[str] = set()
    for call in (n for n in ast.walk(statement) if isinstance(n, ast.Call)):
        given = [*call.args[:1], *(k.value for k in call.keywords if k.arg == "params")]
        found |= {name for argument in given for name in names_in(argument)}
    return found


def _is_given(statement: ast.stmt, model: str) -> bool:
    """Whether a call in a statement is given the model under that name."""
    return any(
        ast.unparse(argument) == model
        for call in ast.walk(statement)
        if isinstance(call, ast.Call)
        for argument in (*call.args, *(k.value for k in call.keywords))
    )


def names_in(statement: ast.AST) -> set[str]:
    """Every name in a piece of code."""
    return {n.id for n in ast.walk(statement) if isinstance(n, ast.Name)}


def names_bound(statement: ast.AST) -> set[str]:
    """The names that a statement binds, and those of lists and dicts that it fills."""
    found = {n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    for node in ast.walk(statement):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)) if method in FILLS:
                found.add(name)
            case ast.Subscript(value=ast.Name(id=name), ctx=ast.Store()):
                found.add(name)
    return found
