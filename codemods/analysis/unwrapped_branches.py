"""Branches that are only reached where a model was wrapped, or where it was not: `if cfg.fsdp: m = FSDP(m)`,
and elsewhere `if not cfg.fsdp: m.load_state_dict(...)`."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import TYPE_CHECKING

from codemods.analysis.conditions import conditions, decided_by
from codemods.analysis.holding import WrapCall
from codemods.analysis.module import Module

if TYPE_CHECKING:
    from typing import TypeGuard

    from codemods.analysis.link import Links


def is_where_not_wrapped(links: Links, module: Module, node: ast.AST, sites: Iterable[WrapCall]) -> bool:
    """Whether a place is reached only if a condition fails under which alone a model is wrapped, or the
    function that wraps it is called.

    So it is where a setting has another value: `if cfg.how == "fsdp": m = FSDP(m)`, and elsewhere `if
    cfg.how == "ddp": m.no_sync()`.

    Args:
        sites: where it can have been wrapped.
    """
    failed: list[ast.expr] = []
    met: list[ast.Compare] = []
    for whole in conditions(module, node, beyond_function=True):
        for test, holds in dict.fromkeys((whole, *decided_by(*whole))):
            if not holds:
                failed.append(test)
            elif _is_equality(test):
                met.append(test)
    if not failed and not met:
        return False
    return all(
        _is_excluded(site, module, node, failed, met)
        or all(_is_excluded(call, module, node, failed, met) for call in _calls_around(links, site))
        for site in sites
    )


def _calls_around(links: Links, site: WrapCall) -> list[WrapCall]:
    """The calls of the function that a wrap stands in, as if they were the wrap; it itself where there are
    none."""
    function = site.module.function(site.node)
    calls = links.calls_of(site.module, function) if function is not None else []
    return [WrapCall(home, call) for home, call in calls] or [site]


def is_where_wrapped(module: Module, node: ast.AST, sites: Iterable[WrapCall]) -> bool:
    """Whether a place is reached only if all conditions hold under which a model is wrapped, and there are
    some."""
    told = conditions(module, node, beyond_function=True)
    held = [part for test, holds in told if holds for part in _held_by(test)]
    sites = list(sites)
    return bool(sites) and all(_is_implied(site, module, node, held) for site in sites)


def _is_implied(site: WrapCall, module: Module, node: ast.AST, held: list[ast.expr]) -> bool:
    """Whether a wrap is made wherever some tests hold, and not everywhere."""

    def is_held(test: ast.expr) -> bool:
        return any(_is_one(site, module, node, test, other) for other in held)

    wanted = list(conditions(site.module, site.node, beyond_function=True))
    return bool(wanted) and all(
        holds
        and not _is_set_behind(site, test)
        and (is_held(test) or all(is_met and is_held(part) for part, is_met in decided_by(test, True)))
        for test, holds in wanted
    )


def _is_excluded(
    site: WrapCall, module: Module, node: ast.AST, failed: list[ast.expr], met: list[ast.Compare]
) -> bool:
    """Whether a wrap is made only where one of some tests holds that fail elsewhere, or where something is
    equal to what it is not there."""

    def excludes(test: ast.expr) -> bool:
        if any(_is_one(site, module, node, test, other) for other in failed):
            return True
        if not _is_equality(test):
            return False
        value = test.comparators[0]
        return any(
            _is_equality(other)
            and _is_one(site, module, node, test.left, other.left)
            and ast.dump(value) == ast.dump(other.comparators[0])
            for other in failed
        ) or any(
            _is_one(site, module, node, test.left, other.left) and _are_different(value, other.comparators[0])
            for other in met
        )

    return any(
        not _is_set_behind(site, test) and any(map(excludes, _held_by(test)))
        for test, holds in conditions(site.module, site.node, beyond_function=True)
        if holds
    )


def _held_by(test: ast.expr) -> list[ast.expr]:
    """A condition that holds, and the tests that hold with it."""
    return [test, *(part for part, holds in decided_by(test, True) if holds and part is not test)]


def _is_one(site: WrapCall, module: Module, node: ast.AST, test: ast.expr, other: ast.expr) -> bool:
    """Whether a test at a wrap asks the same as one at a place elsewhere."""
    is_one_function = site.module.function(site.node) is module.function(node)
    is_one_class = site.module.class_of(site.node) is module.class_of(node)
    return _is_same(test, other, is_one_function, is_one_class)


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
    module, function = site.module, site.module.function(site.node)
    end = module.span(site.node).end
    return any(
        isinstance(stored.ctx, ast.Store)
        and module.span(stored).start >= end
        and (function is None or function in module.ancestors(stored))
        and ast.unparse(stored) == ast.unparse(read)
        for read in ast.walk(test)
        if isinstance(read, ast.Name | ast.Attribute)
        for stored in module.named(read.id if isinstance(read, ast.Name) else read.attr)
    )


def _is_same(one: ast.expr, other: ast.expr, is_one_function: bool, is_one_class: bool) -> bool:
    """Whether two tests ask the same of a program's settings; names of other functions, and attributes of
    other classes' objects, can mean others."""
    if not is_one_function and not isinstance(one, ast.Attribute | ast.Subscript):
        return False
    text, against = (ast.unparse(test).removeprefix("self.") for test in (one, other))
    return text == against and (is_one_function or is_one_class or not text.isidentifier())
