"""A forward pass without gradients between `backward()` and `optimizer.step()`.

Source: measured on torch 2.13 (the root is gathered by that pass and used again after the step)."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.analysis.evaluations import run_by
from codemods.analysis.no_gradients import switches_gradients_off
from codemods.rule import Finding, Maybe, Module, No, Project, Sharded, finding, rule

_DEPTH = 3
"""How many functions the model is followed into."""


@rule("evaluation before the step", {"FM522": "an evaluation between `backward()` and `optimizer.step()`"})
def evaluation_before_step(project: Project) -> Iterator[Finding]:
    """An evaluation between `backward()` and `optimizer.step()` leaves the root with weights from before.

    A forward pass under `no_grad` gathers the root's parameters and leaves them so. The step then changes the
    shards, and the next forward pass computes with the gathered, old ones. FSDP1 did the same, so nothing
    changes with the migration; it is a fault all the same. A model that this optimizer does not train (a
    teacher) has no old weights. Evaluate after the step, or reshard the model
    after the evaluation."""
    for module in project.looked_at:
        for step in (c for c in module.calls() if _method(c) == "step"):
            assert isinstance(step.func, ast.Attribute)
            found = _evaluated_before(project, module, step)
            trained = project.optimizer_of(module, step.func.value)
            if found is not None and not isinstance(trained, No) and _is_of(project, module, found, trained):
                yield finding(
                    module,
                    found,
                    "FM522",
                    "an evaluation between `backward()` and the step leaves the root gathered: the next "
                    "forward pass uses its old weights, under FSDP1 and FSDP2 alike; evaluate after the step",
                    is_note=True,
                )


def _is_of(project: Project, module: Module, run: ast.Call, trained: Sharded | Maybe) -> bool:
    """Whether the model that is evaluated can be one that the optimizer trains: a teacher is not."""
    models = (project.sharded(module, e) for e in (run.func, *run.args))
    sites = frozenset(site for held in models if not isinstance(held, No) for site in held.sites)
    return not sites or not trained.sites or bool(sites & trained.sites)


def _evaluated_before(project: Project, module: Module, step: ast.Call) -> ast.Call | None:
    """The evaluation between a step and the backward pass before it, in the step's block."""
    statement = module.statement(step)
    block = module.block(statement)
    found: ast.Call | None = None
    has_gradients = False
    for earlier in block[: block.index(statement)]:
        for call in (n for n in ast.walk(earlier) if isinstance(n, ast.Call)):
            if _method(call) in ("backward", "reshard", "step"):
                has_gradients, found = _method(call) == "backward", None
            elif has_gradients and _is_evaluation(project, module, call):
                found = call
    return found


def _is_evaluation(project: Project, module: Module, call: ast.Call, depth: int = _DEPTH) -> bool:
    """Whether a call runs a sharded model without gradients, by itself or in a function it is given to."""
    if not isinstance(project.sharded(module, call.func), No):
        return _is_without_gradients(module, call)
    given = [a for a in call.args if not isinstance(project.sharded(module, a), No)]
    around = _is_without_gradients(module, call)
    return (
        any(around or is_off for is_off in _runs(project, module, call, given[0], depth)) if given else False
    )


def _runs(project: Project, module: Module, call: ast.Call, given: ast.expr, depth: int) -> Iterator[bool]:
    """Of each place where a function, or one that it calls, runs the model that it is given: whether no
    gradients are computed there. One that only looks at the model's gradients has none."""
    symbol = project.resolve(module, call.func) if depth else None
    function, home = (symbol.node, symbol.module) if symbol is not None else (None, None)
    position = call.args.index(given)
    if home is None or not isinstance(function, ast.FunctionDef) or position >= len(function.args.args):
        return
    name = function.args.args[position].arg
    decorated = any(map(switches_gradients_off, function.decorator_list))
    for inner in (n for n in ast.walk(function) if isinstance(n, ast.Call)):
        is_off = decorated or _is_without_gradients(home, inner)
        if ast.unparse(run_by(inner)) == name:
            yield is_off
        for argument in (a for a in inner.args if isinstance(a, ast.Name) and a.id == name):
            yield from (is_off or further for further in _runs(project, home, inner, argument, depth - 1))


def _is_without_gradients(module: Module, node: ast.AST) -> bool:
    return any(
        isinstance(parent, ast.With)
        and any(switches_gradients_off(item.context_expr) for item in parent.items)
        for parent in module.ancestors(node)
    )


def _method(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""
