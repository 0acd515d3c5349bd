"""Code within `summon_full_params`, where parameters are whole before the migration and after it."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from codemods.analysis.module import Module

if TYPE_CHECKING:
    from codemods.project import Project


def is_summoned(module: Module, node: ast.AST) -> bool:
    """Whether a context around a place speaks of `summon_full_params`, of whatever model."""
    return any(
        isinstance(parent, ast.With)
        and any("summon_full_params" in ast.unparse(item.context_expr) for item in parent.items)
        for parent in module.ancestors(node)
    )


def is_model_summoned(project: Project, module: Module, node: ast.AST, model: ast.expr) -> bool:
    """Whether `summon_full_params` of a model, or of what it is a part of, is around a place."""
    text = ast.unparse(model)
    summons = {use.node for use in project.static_calls("summon_full_params")}
    for parent in module.ancestors(node):
        if isinstance(parent, ast.With):
            for item in parent.items:
                call = item.context_expr
                if call in summons and isinstance(call, ast.Call):
                    given = [*call.args, *(k.value for k in call.keywords)]
                    if any(f"{text}.".startswith(f"{ast.unparse(one)}.") for one in given):
                        return True
        elif isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef):
            return False
    return False
