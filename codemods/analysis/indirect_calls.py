"""Functions that something else calls: `functools.partial(f, x)`, `Thread(target=f, args=(x,))`,
`executor.submit(f, x)`, `spawn(f, args=(x,))`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.analysis.classes import Classes
from codemods.analysis.holding import Instance
from codemods.analysis.index import Index
from codemods.analysis.module import Module

_FIRST = frozenset({"submit", "to_thread", "partial", "call_soon", "run_sync"})
_SPAWN = frozenset({"spawn", "start_processes"})


def indirect_calls(
    index: Index, classes: Classes, modules: dict[str, Module]
) -> dict[ast.AST, list[tuple[Module, ast.Call]]]:
    """Definition -> the calls that something else makes, written as if they stood there.

    The calls are made for this answer and stand in no tree; their arguments do.
    """
    found: dict[ast.AST, list[tuple[Module, ast.Call]]] = {}
    for module in list(modules.values()):
        for call in module.calls():
            for function, arguments, keywords in _handed_on(call):
                definition = _definition(index, classes, module, function)
                if definition is not None:
                    made = ast.Call(function, arguments, keywords)
                    found.setdefault(definition, []).append((module, made))
    return found


def _handed_on(call: ast.Call) -> Iterator[tuple[ast.expr, list[ast.expr], list[ast.keyword]]]:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    told = {k.arg: k.value for k in call.keywords}
    if "target" in told or ("args" in told and name in _SPAWN | {"apply_async", "apply"}):
        function = told.get("target") or told.get("fn") or (call.args[0] if call.args else None)
        if function is not None:
            rank: list[ast.expr] = [ast.Constant(0)] if name in _SPAWN else []
            yield function, [*rank, *_elements(told.get("args"))], _keywords(told.get("kwargs"))
    elif name in _FIRST and call.args:
        yield call.args[0], call.args[1:], call.keywords
    elif name == "run_in_executor" and len(call.args) > 1:
        yield call.args[1], call.args[2:], []


def _elements(node: ast.expr | None) -> list[ast.expr]:
    if isinstance(node, ast.Tuple | ast.List):
        return list(node.elts)
    return [ast.Starred(node, ast.Load())] if node is not None else []


def _keywords(node: ast.expr | None) -> list[ast.keyword]:
    return [ast.keyword(None, node)] if node is not None else []


def _definition(index: Index, classes: Classes, module: Module, function: ast.expr) -> ast.AST | None:
    symbol = index.resolve(module, function)
    if symbol is not None:
        return symbol.node if symbol.module is not None else None
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        owner = module.class_of(function) if function.value.id == "self" else None
        if owner is not None:
            methods = classes.methods(Instance(owner, module), function.attr)
            return methods[0][1] if methods else None
    return None
