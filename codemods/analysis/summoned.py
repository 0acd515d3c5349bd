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
    return summoning(module, node, model) is not None


def summoning(module: Module, node: ast.AST, model: ast.expr) -> ast.With | None:
    """The block around a place within which the parameters of a model are whole there."""
    text, below = f"{ast.unparse(model)}.", node
    for parent in module.ancestors(node):
        if isinstance(parent, ast.With) and not isinstance(below, ast.withitem):
            for one in (one for item in parent.items for one in _summoned(item.context_expr)):
                whole = ast.unparse(one)
                if text.startswith(f"{whole}."):
                    return None if _has_run(parent, node, (ast.unparse(model), whole)) else parent
        elif isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef):
            return None
        below = parent
    return None


def _has_run(block: ast.With, node: ast.AST, models: tuple[str, ...]) -> bool:
    """Whether a model, or what it is a part of, has been run in a block before a place, by a call or one of
    its usual methods."""
    plain = {_without_module(model) for model in models}
    runs = {*plain, *(f"{model}.{name}" for model in plain for name in _RUNNING)}
    before = (n for n in ast.walk(block) if isinstance(n, ast.Call) and n.lineno < getattr(node, "lineno", 0))
    return any(_without_module(ast.unparse(call.func)) in runs for call in before)


def _without_module(chain: str) -> str:
    """`model.head` of `model.module.head`."""
    return chain.replace(".module.", ".")


def _summoned(context: ast.expr) -> Iterator[ast.expr]:
    """What a context can summon all parameters of."""
    match context:
        case ast.Call(func=ast.Attribute(attr="summon_full_params") | ast.Name(id="summon_full_params")):
            if any(keyword.arg == "recurse" and not _is_true(keyword.value) for keyword in context.keywords):
                return
            yield from (*context.args, *(keyword.value for keyword in context.keywords))


def only_loads(block: ast.With) -> bool:
    """Whether all that a block is for is to load state dicts, which FSDP2 does by itself."""
    return len(block.items) == 1 and all(
        isinstance(statement, ast.Expr | ast.Assign)
        and isinstance(statement.value, ast.Call)
        and isinstance(statement.value.func, ast.Attribute)
        and statement.value.func.attr == "load_state_dict"
        for statement in block.body
    )


def _is_true(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is True
