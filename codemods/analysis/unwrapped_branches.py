"""Branches that are only reached where a model was wrapped, or where it was not: `if cfg.fsdp: m = FSDP(m)`,
and elsewhere `if not cfg.fsdp: m.load_state_dict(...)`."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import TYPE_CHECKING

from codemods.analysis.conditions import conditions
from codemods.analysis.holding import WrapCall
from codemods.analysis.module import Module

if TYPE_CHECKING:
    from typing import TypeGuard


def is_where_not_wrapped(module: Module, node: ast.AST, sites: Iterable[WrapCall]) -> bool:
    """Whether a place is reached only if a condition fails under which alone a model is wrapped.

    So it is where a setting has another value: `if cfg.how == "fsdp": m = FSDP(m)`, and elsewhere `if
    cfg.how == "ddp": m.no_sync()`.

    Args:
        sites: where it can have been wrapped.
    """
    failed: list[ast.expr] = []
    met: list[ast.Compare] = []
    for test, holds in conditions(module, node, beyond_function=True):
        if holds:
            met += [part for part in _all_of(test) if _is_equality(part)]
        else:
            failed.append(test)
    return bool(failed or met) and all(_is_made_under(site, module, node, failed, met) for site in sites)


def is_where_wrapped(module: Module, node: ast.AST, sites: Iterable[WrapCall]) -> bool:
    """Whether a place is reached only if a condition holds under which alone a model is wrapped."""
    held = [test for test, holds in conditions(module, node, beyond_function=True) if holds]
    sites = list(sites)
    return bool(held) and bool(sites) and all(_is_made_under(s, module, node, held, []) for s in sites)


def _is_made_under(
    site: WrapCall, module: Module, node: ast.AST, tests: list[ast.expr], others: list[ast.Compare]
) -> bool:
    """Whether a wrap is made only where one of some tests of a place elsewhere holds, or one of its
    comparisons has another outcome."""
    is_one_function = site.module.function(site.node) is module.function(node)
    is_one_class = site.module.class_of(site.node) is module.class_of(node)

    def is_one(test: ast.expr) -> bool:
        if any(_is_same(test, other, is_one_function, is_one_class) for other in tests):
            return True
        for part in (part for part in _all_of(test) if _is_equality(part)):
            for other in others:
                is_same = _is_same(part.left, other.left, is_one_function, is_one_class)
                if is_same and _are_different(part.comparators[0], other.comparators[0]):
                    return True
        return False

    return any(
        holds and not _is_set_behind(site, test) and is_one(test)
        for test, holds in conditions(site.module, site.node, beyond_function=True)
    )


def _all_of(test: ast.expr) -> list[ast.expr]:
    """The tests that all hold where a condition does."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return [part for value in test.values for part in _all_of(value)]
    return [test]


def _is_equality(test: ast.expr) -> TypeGuard[ast.Compare]:
    return isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq | ast.Is)


def _are_different(one: ast.expr, other: ast.expr) -> bool:
    """Whether two expressions are different constants: texts and numbers, or members of one enumeration."""
    match one, other:
        case ast.Constant(value=first), ast.Constant(value=second):
            return type(first) is type(second) and first != second
        case ast.Attribute(value=home, attr=first), ast.Attribute(value=there, attr=second):
            return ast.unparse(home) == ast.unparse(there) and _names_class(home) and first != second
    return False


def _names_class(home: ast.expr) -> bool:
    """Whether a name is that of a class: its last word begins with a capital letter."""
    return ast.unparse(home).rpartition(".")[2][:1].isupper()


def _is_set_behind(site: WrapCall, test: ast.expr) -> bool:
    """Whether something that a test reads is changed behind the wrap: `self.pending = False`."""
    module, function = site.module, site.module.function(site.node) or site.module.tree
    end = module.span(site.node).end
    stored = {
        ast.unparse(node)
        for node in ast.walk(function)
        if isinstance(node, ast.Name | ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and module.span(node).start >= end
    }
    return any(ast.unparse(n) in stored for n in ast.walk(test) if isinstance(n, ast.Name | ast.Attribute))


def _is_same(one: ast.expr, other: ast.expr, is_one_function: bool, is_one_class: bool) -> bool:
    """Whether two tests ask the same of a program's settings; names of other functions, and attributes of
    other classes' objects, can mean others."""
    if not is_one_function and not isinstance(one, ast.Attribute | ast.Subscript):
        return False
    text, against = (ast.unparse(test).removeprefix("self.") for test in (one, other))
    return text == against and (is_one_function or is_one_class or not text.isidentifier())
