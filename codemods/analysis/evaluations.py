"""Where the program runs sharded models, with a backward pass to follow or without one."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

from codemods.analysis.holding import No, WrapCall
from codemods.analysis.module import Module
from codemods.analysis.no_gradients import switches_gradients_off
from codemods.analysis.origins import Origins

if TYPE_CHECKING:
    from codemods.project import Project

_DEPTH = 3
_Run: TypeAlias = "tuple[Module, ast.Call, frozenset[WrapCall]]"


def run_by(call: ast.Call) -> ast.expr:
    """What a call runs if it is a model."""
    run = call.func
    return run.value if isinstance(run, ast.Attribute) and run.attr in ("generate", "forward") else run


def evaluated(project: Project) -> frozenset[WrapCall] | None:
    """The wraps of the models that the program runs without a backward pass: empty where these cannot be
    told, None where it runs none so."""
    found = project.memo.get("evaluated")
    if not isinstance(found, tuple):
        held = [sites for module, call, sites in _runs(project) if _is_evaluation(project, module, call)]
        found = (bool(held), frozenset[WrapCall]().union(*held) if all(held) else frozenset())
        project.memo["evaluated"] = found
    is_any, sites_found = found
    return sites_found if is_any else None


def is_only_evaluated(project: Project, module: Module, model: ast.expr, sites: frozenset[WrapCall]) -> bool:
    """Whether a model is run, and never with a backward pass to follow: an average, a teacher.

    Args:
        sites: where it is wrapped; of the models that are wrapped there it is told by what it was made from.
    """
    runs = [(home, call) for home, call, run in _runs(project) if run & sites]
    if not all(_is_evaluation(project, home, call) for home, call in runs):
        origins = Origins(project.links)
        made = origins.of(module, model)
        others = ((home, call, origins.of(home, run_by(call))) for home, call in runs)
        runs = [(home, call) for home, call, there in others if not there or made & there]
    return bool(runs) and all(_is_evaluation(project, home, call) for home, call in runs)


def _runs(project: Project) -> list[_Run]:
    """Every call that runs a sharded model, with the wraps it can come from."""
    found = project.memo.get("runs")
    if not isinstance(found, list):
        found = project.memo["runs"] = list(_all_runs(project))
    return found


def _all_runs(project: Project) -> Iterator[_Run]:
    for module in project.looked_at:
        for call in module.calls():
            run = run_by(call)
            holding = project.sharded(module, run) if project.links.may_be_sharded(run) else No()
            if not isinstance(holding, No):
                yield module, call, holding.sites


def _is_evaluation(project: Project, module: Module, call: ast.Call, depth: int = _DEPTH) -> bool:
    """Whether a call stands where no gradients are computed, or in a function that is called there."""
    if is_without_gradients(module, call):
        return True
    function = module.function(call)
    if not depth or not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    calls = project.links.calls_of(module, function)
    return any(_is_evaluation(project, home, outer, depth - 1) for home, outer in calls)


def is_without_gradients(module: Module, node: ast.AST) -> bool:
    """Whether a place is in a function or block that computes no gradients."""
    return any(_is_without_gradients(module, parent) for parent in module.ancestors(node))


def _is_without_gradients(module: Module, node: ast.AST) -> bool:
    """Whether it is a function or block that computes no gradients, or that puts a model into `eval()`."""
    told: list[ast.expr] = []
    if isinstance(node, ast.FunctionDef):
        told = node.decorator_list
        if _calls_within(module, node, "eval") and not _calls_within(module, node, "backward"):
            return True
    elif isinstance(node, ast.With):
        told = [item.context_expr for item in node.items]
    return any(map(switches_gradients_off, told))


def _calls_within(module: Module, function: ast.FunctionDef, name: str) -> bool:
    """Whether a method of that name is called in a function."""
    calls = (call for call in module.called(name) if isinstance(call.func, ast.Attribute))
    return any(function in module.ancestors(call) for call in calls)
