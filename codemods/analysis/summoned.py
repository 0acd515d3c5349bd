"""Code within `summon_full_params`, where parameters are whole before the migration and after it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.analysis.module import Module

_RUNNING = ("forward", "generate", "module")


def is_summoned(module: Module, node: ast.AST) -> bool:
    """Whether a context around a place speaks of `summon_full_params`, of whatever model."""
    return any(
        isinstance(parent, ast.With)
        and any("summon_full_params" in ast.unparse(item.context_expr) for item in parent.items)
        for parent in module.ancestors(node)
    )


def is_model_summoned(module: Module, node: ast.AST, model: ast.expr) -> bool:
    """Whether `summon_full_params` of a model, or of what it is a part of, is around a place: FSDP1's, by its
    class or as a method, or the helper module's. Running the model before puts its shards back."""
    text, below = f"{ast.unparse(model)}.", node
    for parent in module.ancestors(node):
        if isinstance(parent, ast.With) and not isinstance(below, ast.withitem):
            summoned = (one for item in parent.items for one in _summoned(item.context_expr))
            if any(text.startswith(f"{ast.unparse(one)}.") for one in summoned):
                return not _has_run(parent, node, ast.unparse(model))
        elif isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef):
            return False
        below = parent
    return False


def _has_run(block: ast.With, node: ast.AST, model: str) -> bool:
    """Whether a model has been run in a block before a place, by a call or one of its usual methods."""
    runs = {model, *(f"{model}.{name}" for name in _RUNNING)}
    before = (n for n in ast.walk(block) if isinstance(n, ast.Call) and n.lineno < getattr(node, "lineno", 0))
    return any(ast.unparse(call.func).replace(".module.", ".") in runs for call in before)


def _summoned(context: ast.expr) -> Iterator[ast.expr]:
    """What a context can summon all parameters of."""
    match context:
        case ast.Call(func=ast.Attribute(attr="summon_full_params") | ast.Name(id="summon_full_params")):
            if any(keyword.arg == "recurse" for keyword in context.keywords):
                return
            yield from (*context.args, *(keyword.value for keyword in context.keywords))


def only_loads(block: ast.With) -> bool:
    """Whether all that a block does is to load state dicts, which FSDP2 does by itself."""
    return all(
        isinstance(statement, ast.Expr | ast.Assign)
        and isinstance(statement.value, ast.Call)
        and isinstance(statement.value.func, ast.Attribute)
        and statement.value.func.attr == "load_state_dict"
        for statement in block.body
    )
