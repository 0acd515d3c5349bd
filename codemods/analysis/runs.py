"""Whether a sharded model has run before a place of the same function."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from codemods.analysis.holding import No
from codemods.analysis.module import Module

if TYPE_CHECKING:
    from codemods.project import Project

_DEPTH = 2


def has_run(project: Project, module: Module, place: ast.AST, owner: ast.expr) -> bool:
    """Whether the model is run earlier in the function of a place."""
    return bool(_runs_before(project, module, place, owner))


def is_gathered(project: Project, module: Module, place: ast.AST, owner: ast.expr) -> bool:
    """Whether the model is run earlier in the function and no backward pass comes between."""
    runs = _runs_before(project, module, place, owner)
    if not runs:
        return False
    last, start = max(module.span(call).start for call in runs), module.span(place).start
    calls = _calls_around(module, place)
    between = [c for c in calls if last <= module.span(c).start < start]
    ends = ("backward", "reshard")
    return not any(any(e in _name(c) for e in ends) or _trains(project, module, c) for c in between)


def _runs_before(project: Project, module: Module, place: ast.AST, owner: ast.expr) -> list[ast.Call]:
    start, text = module.span(place).start, ast.unparse(owner)
    bound = _bound_at(module, place, text)
    found = []
    for call in _calls_around(module, place):
        if not bound <= module.span(call).start < start or not _runs(project, module, call, text, _DEPTH):
            continue
        given = [call.func, *call.args]
        parts = (n for part in given for n in ast.walk(part))
        models = [n for n in parts if isinstance(n, ast.expr) and ast.unparse(n) == text]
        if any(not isinstance(project.sharded(module, n), No) for n in models):
            found.append(call)
    return found


def _calls_around(module: Module, place: ast.AST) -> list[ast.Call]:
    """Every call of the function that a place stands in, or of the module outside of functions."""
    scope = module.function(place)
    if scope is not None:
        return [n for n in ast.walk(scope) if isinstance(n, ast.Call)]
    return [call for call in module.calls() if module.function(call) is None]


def _bound_at(module: Module, place: ast.AST, text: str) -> int:
    """Where the block of a place last gives the name to another model, which has not run yet; else 0."""
    statement = module.statement(place)
    start = module.span(statement).start
    bound = 0
    for one in ast.iter_child_nodes(module.parent(statement) or statement):
        if not isinstance(one, ast.Assign) or module.span(one).end > start:
            continue
        is_of_itself = any(ast.unparse(n) == text for n in ast.walk(one.value) if isinstance(n, ast.expr))
        if not is_of_itself and any(ast.unparse(target) == text for target in one.targets):
            bound = max(bound, module.span(one).end)
    return bound


def _runs(project: Project, module: Module, call: ast.Call, text: str, depth: int) -> bool:
    """Whether a call runs the model of that name: by itself or in a function it is given to."""
    if ast.unparse(call.func) in (text, f"{text}.generate", f"{text}.forward"):
        return True
    position = next((i for i, a in enumerate(call.args) if ast.unparse(a) == text), None)
    symbol = project.resolve(module, call.func) if position is not None and depth else None
    if symbol is None or symbol.module is None or not isinstance(symbol.node, ast.FunctionDef):
        return False
    parameters = symbol.node.args.args
    if position is None or position >= len(parameters):
        return False
    inner = (n for n in ast.walk(symbol.node) if isinstance(n, ast.Call))
    home = symbol.module
    return any(_runs(project, home, c, parameters[position].arg, depth - 1) for c in inner)


def _trains(project: Project, module: Module, call: ast.Call) -> bool:
    """Whether a call is one of a function that runs a backward pass itself."""
    symbol = project.resolve(module, call.func)
    if symbol is None or symbol.module is None or not isinstance(symbol.node, ast.FunctionDef):
        return False
    return any("backward" in _name(n) for n in ast.walk(symbol.node) if isinstance(n, ast.Call))


def _name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
