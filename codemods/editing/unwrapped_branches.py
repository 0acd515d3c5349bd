"""Branches that are only reached where a model was not wrapped: `if cfg.fsdp: m = FSDP(m)`, and elsewhere `if
not cfg.fsdp: m.load_state_dict(...)`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from codemods.analysis.holding import Maybe, Sharded, WrapCall
from codemods.analysis.module import Module
from codemods.editing.statements import branches_before

if TYPE_CHECKING:
    from codemods.project import Project


def is_where_not_wrapped(project: Project, module: Module, node: ast.AST, model: ast.expr) -> bool:
    """Whether a place is reached only if a condition fails under which alone the model is wrapped."""
    holding = project.sharded(module, model)
    sites = holding.sites if isinstance(holding, Sharded | Maybe) else frozenset()
    if not sites:
        return False
    failed = [test for test, holds in _conditions(module, node) if not holds]
    return bool(failed) and all(_is_excluded(site, module.function(node), failed) for site in sites)


def _is_excluded(site: WrapCall, function: ast.AST | None, failed: list[ast.expr]) -> bool:
    """Whether a wrap is made only where one of some tests holds that fail elsewhere."""
    is_one = site.module.function(site.node) is function
    return any(
        holds and any(_is_same(test, other, is_one_function=is_one) for other in failed)
        for test, holds in _conditions(site.module, site.node)
    )


def _conditions(module: Module, node: ast.AST) -> Iterator[tuple[ast.expr, bool]]:
    """The tests that decide whether a place is reached, and whether they hold there."""
    found: list[tuple[ast.expr, bool]] = []
    child = node
    for parent in module.ancestors(node):
        if isinstance(parent, ast.If) and child is not parent.test:
            found.append((parent.test, child in parent.body))
        child = parent
    leaves = (ast.Return, ast.Raise, ast.Continue, ast.Break)
    found += [(b.test, False) for b in branches_before(module, node) if isinstance(b.body[-1], leaves)]
    for test, holds in found:
        while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            test, holds = test.operand, not holds
        yield test, holds


def _is_same(one: ast.expr, other: ast.expr, *, is_one_function: bool) -> bool:
    """Whether two tests ask the same of a program's settings; names of other functions can mean others."""
    if not is_one_function and not isinstance(one, ast.Attribute | ast.Subscript):
        return False
    return ast.unparse(one).removeprefix("self.") == ast.unparse(other).removeprefix("self.")
