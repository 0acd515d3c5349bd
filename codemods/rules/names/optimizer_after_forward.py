"""An optimizer that is built after the sharded model has run.

Source: `torch/distributed/fsdp/_fully_shard/_fsdp_state.py` (the root stays gathered after a forward pass).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.editing.moves import lists_for
from codemods.editing.resharding import resharding
from codemods.kept_parameters import are_taken
from codemods.rule import Finding, Module, No, Project, Safety, finding, insert_before, rule

_DEPTH = 2


@rule(
    "optimizer after a forward pass",
    {"FM519": "an optimizer built after the sharded model has run"},
    order=30,
)
def optimizer_after_forward(project: Project) -> Iterator[Finding]:
    """Before an optimizer that is built after a forward pass, the units are resharded.

    After a forward pass the root of an FSDP2 model stays gathered: `model.parameters()` then shows whole,
    temporary parameters for it, and an optimizer built from them would never update the root, without a word.

        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.reshard()
        optimizer = AdamW(model.parameters())
    """
    for module in project.looked_at if are_taken(project) else ():
        for call in module.calls():
            if not project.links.builds_optimizer(module, call):
                continue
            for owner in project.links.parameter_owners(module, call):
                if isinstance(project.sharded(module, owner), No) or not _has_run(
                    project, module, call, owner
                ):
                    continue
                lines = resharding(module, owner)
                yield finding(
                    module,
                    call,
                    "FM519",
                    "the model has run before: its root would show temporary parameters to the optimizer",
                    safety=Safety.SAFE,
                    edits=[insert_before(module, _first(module, call, owner), lines)],
                )
                break


def _first(module: Module, call: ast.Call, owner: ast.expr) -> ast.stmt:
    """The first statement that takes the parameters: the optimizer's, or one that lists them for it."""
    statement = module.statement(call)
    lists = lists_for(module.block(statement), statement, ast.unparse(owner))
    end = module.span(statement).start
    ran = [
        module.span(c).start
        for c in module.calls()
        if module.span(c).start < end and _runs_by_itself(c, ast.unparse(owner))
    ]
    return next((s for s in lists if all(module.span(s).start > place for place in ran)), statement)


def _runs_by_itself(call: ast.Call, text: str) -> bool:
    return ast.unparse(call.func) in (text, f"{text}.generate", f"{text}.forward")


def _has_run(project: Project, module: Module, optimizer: ast.Call, owner: ast.expr) -> bool:
    """Whether the sharded model is run earlier in the same function."""
    function = module.function(optimizer)
    if function is None:
        return False
    start, text = module.span(optimizer).start, ast.unparse(owner)
    bound = _bound_at(module, optimizer, text)
    for call in (n for n in ast.walk(function) if isinstance(n, ast.Call)):
        if not bound <= module.span(call).start < start or not _runs(project, module, call, text, _DEPTH):
            continue
        given = [call.func, *call.args]
        parts = (n for part in given for n in ast.walk(part))
        models = [n for n in parts if isinstance(n, ast.Name | ast.Attribute)]
        if any(ast.unparse(n) == text and not isinstance(project.sharded(module, n), No) for n in models):
            return True
    return False


def _bound_at(module: Module, optimizer: ast.Call, text: str) -> int:
    """Where the optimizer's block last gives the name to another model, which has not run yet; else 0."""
    statement = module.statement(optimizer)
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
    if _runs_by_itself(call, text):
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
