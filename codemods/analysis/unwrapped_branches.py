"""Branches that are only reached where a model was wrapped, or where it was not: `if cfg.fsdp: m = FSDP(m)`,
and elsewhere `if not cfg.fsdp: m.load_state_dict(...)`."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from codemods.analysis.conditions import conditions
from codemods.analysis.holding import WrapCall
from codemods.analysis.module import Module


def is_where_not_wrapped(module: Module, node: ast.AST, sites: Iterable[WrapCall]) -> bool:
    """Whether a place is reached only if a condition fails under which alone a model is wrapped.

    Args:
        sites: where it can have been wrapped.
    """
    failed = [test for test, holds in conditions(module, node, beyond_function=True) if not holds]
    return bool(failed) and all(_is_made_under(site, module, node, failed) for site in sites)


def is_where_wrapped(module: Module, node: ast.AST, sites: Iterable[WrapCall]) -> bool:
    """Whether a place is reached only if a condition holds under which alone a model is wrapped."""
    held = [test for test, holds in conditions(module, node, beyond_function=True) if holds]
    sites = list(sites)
    return bool(held) and bool(sites) and all(_is_made_under(site, module, node, held) for site in sites)


def _is_made_under(site: WrapCall, module: Module, node: ast.AST, tests: list[ast.expr]) -> bool:
    """Whether a wrap is made only where one of some tests of a place elsewhere holds."""
    is_one_function = site.module.function(site.node) is module.function(node)
    is_one_class = site.module.class_of(site.node) is module.class_of(node)
    return any(
        holds
        and not _is_set_behind(site, test)
        and any(_is_same(test, other, is_one_function, is_one_class) for other in tests)
        for test, holds in conditions(site.module, site.node, beyond_function=True)
    )


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
