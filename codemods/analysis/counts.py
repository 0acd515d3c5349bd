"""Whether a number that was counted goes on to be multiplied by, or summed over, the ranks."""

from __future__ import annotations

import ast

from codemods.analysis.module import Module
from codemods.project import Project

_RANKS = ("world", "num_gpus", "n_gpus", "num_processes", "dp_size", "nprocs")
_SUMS = ("all_reduce", "reduce")


def count_goes_over_ranks(project: Project, module: Module, node: ast.AST, depth: int = 1) -> bool:
    """Whether the count at a node, a name it gets in its function, or what the function returns does so."""
    statement = module.statement(node)
    if _is_multiplied(statement, None):
        return True
    function = module.function(node)
    if isinstance(statement, ast.Return) and function is not None and depth:
        calls = project.links.calls_of(module, function)
        return any(count_goes_over_ranks(project, home, call, depth - 1) for home, call in calls)
    names = _names_given(module, node)
    scope = function if function is not None else module.tree
    for later in (n for n in ast.walk(scope) if isinstance(n, ast.stmt)):
        if isinstance(later, ast.Assign) and names & _names(later.value):
            names |= {n.id for target in later.targets for n in ast.walk(target) if isinstance(n, ast.Name)}
    return any(
        _is_multiplied(n, names) or _is_summed(n, names)
        for n in ast.walk(scope)
        if isinstance(n, ast.BinOp | ast.AugAssign | ast.Call)
    )


def _names_given(module: Module, node: ast.AST) -> set[str]:
    for parent in (node, *module.ancestors(node)):
        match parent:
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AugAssign(target=ast.Name(id=name)):
                return {name}
            case ast.stmt():
                return set()
    return set()


def _is_multiplied(node: ast.AST, names: set[str] | None) -> bool:
    """Whether a product in a piece of code has a factor that is a number of ranks.

    Args:
        names: of which one must be in it; None for any.
    """
    return any(
        isinstance(n, ast.BinOp | ast.AugAssign)
        and isinstance(n.op, ast.Mult)
        and any(word in ast.unparse(n).lower() for word in _RANKS)
        and (names is None or names & _names(n))
        for n in ast.walk(node)
    )


def _is_summed(node: ast.AST, names: set[str]) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not node.args:
        return False
    return node.func.attr in _SUMS and bool(names & _names(node.args[0]))


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
