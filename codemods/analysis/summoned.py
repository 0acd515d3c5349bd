"""Code within `summon_full_params`, where parameters are whole before the migration and after it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.analysis.module import Module


def is_summoned(module: Module, node: ast.AST) -> bool:
    """Whether a context around a place speaks of `summon_full_params`, of whatever model."""
    return any(
        isinstance(parent, ast.With)
        and any("summon_full_params" in ast.unparse(item.context_expr) for item in parent.items)
        for parent in module.ancestors(node)
    )


def is_model_summoned(module: Module, node: ast.AST, model: ast.expr) -> bool:
    """Whether `summon_full_params` of a model, or of what it is a part of, is around a place: FSDP1's, by its
    class or as a method, or the helper module's."""
    text = f"{ast.unparse(model)}."
    for parent in module.ancestors(node):
        if isinstance(parent, ast.With):
            summoned = (one for item in parent.items for one in _summoned(item.context_expr))
            if any(text.startswith(f"{ast.unparse(one)}.") for one in summoned):
                return True
        elif isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef):
            return False
    return False


def _summoned(context: ast.expr) -> Iterator[ast.expr]:
    """What a context can summon the parameters of."""
    match context:
        case ast.Call(func=ast.Attribute(attr="summon_full_params") | ast.Name(id="summon_full_params")):
            yield from (*context.args, *(keyword.value for keyword in context.keywords))
