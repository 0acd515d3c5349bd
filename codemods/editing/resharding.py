"""A model that was evaluated is resharded before a state dict is loaded or made of its optimizer's state.

Source: `torch/distributed/fsdp/_fully_shard/_fsdp_state.py` (the root stays gathered after a forward pass
until the next backward pass ends) and `torch/distributed/checkpoint/state_dict.py` (parameters are looked up
by identity before anything reshards them; `get_model_state_dict` does).
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from codemods.analysis.evaluations import evaluated, run_by
from codemods.analysis.holding import Maybe, No, Sharded
from codemods.analysis.module import Module
from codemods.analysis.state_dicts import argument
from codemods.editing.code import code, insert_before
from codemods.model import Code, Edit

if TYPE_CHECKING:
    from codemods.project import Project

_MODEL = ("state_dict", "load_state_dict")
_OPTIMIZER = (
    *("optim_state_dict", "full_optim_state_dict", "sharded_optim_state_dict"),
    *("optim_state_dict_to_load", "scatter_full_optim_state_dict", "shard_full_optim_state_dict"),
    "flatten_sharded_optim_state_dict",
)
_DEPTH = 3


def resharding(module: Module, model: ast.expr) -> Code:
    """The loop that reshards every unit of a model."""
    scope, unit = module.scope_of(model), "module"
    while scope.lookup(unit) is not None:
        unit = "unit" if unit == "module" else f"{unit}_"
    return code(
        module,
        "# After a forward pass the root shows temporary parameters.\n"
        f"for {unit} in {{model}}.modules():\n"
        f"    if isinstance({unit}, {{torch.distributed.fsdp.FSDPModule}}):\n"
        f"        {unit}.reshard()",
        model=ast.unparse(model),
    )


def resharded_before(project: Project, module: Module, call: ast.Call, model: ast.expr | None) -> list[Edit]:
    """The loop before a call that needs the shards, where the program evaluates the model and the function
    has not read or loaded the model's own state dict before."""
    if model is None or not isinstance(model, ast.Name | ast.Attribute):
        return []
    if _shows_shards(project, module, call, ast.unparse(model)) or not _is_evaluated(project, module, model):
        return []
    return [insert_before(module, _outermost(module, call), resharding(module, model))]


def _outermost(module: Module, call: ast.Call) -> ast.stmt:
    """The call's statement, or the `state_dict_type` block that goes from around it."""
    statement = module.statement(call)
    parent = module.parent(statement)
    while isinstance(parent, ast.With) and any("state_dict_type" in ast.unparse(i) for i in parent.items):
        statement, parent = parent, module.parent(parent)
    return statement


def _shows_shards(project: Project, module: Module, call: ast.Call, model: str) -> bool:
    """Whether what comes first wherever a call is reached has made or resharded the model, and nothing after
    it runs one."""
    function, start = module.function(call), module.span(call).start
    around = {module.statement(call), *module.ancestors(call)}
    earlier = [c for c in module.calls() if module.span(c).start < start and module.function(c) is function]
    for other in earlier:
        if not _makes(module, other, model) and not _reshards(other, model):
            continue
        if around.isdisjoint(module.block(_outermost(module, other))):
            continue
        end = module.span(other).end
        between = [c for c in earlier if module.span(c).start >= end]
        if not any(_runs_something(project, module, c, _DEPTH) for c in between):
            return True
    return False


def _makes(module: Module, call: ast.Call, model: str) -> bool:
    """`model = build()`, `model, optimizer = build()`."""
    parent = module.parent(call)
    if not isinstance(parent, ast.Assign):
        return False
    targets = [e for t in parent.targets for e in (t.elts if isinstance(t, ast.Tuple) else [t])]
    return any(ast.unparse(target) == model for target in targets)


def _reshards(call: ast.Call, model: str) -> bool:
    """A state dict of the model itself, or a call that had to reshard it."""
    if not isinstance(call.func, ast.Attribute):
        return False
    subject = call.func.value if call.func.attr in _MODEL else None
    if call.func.attr in _OPTIMIZER:
        subject = argument(call, 0, "model")
    return subject is not None and ast.unparse(subject) == model


def _runs_something(project: Project, module: Module, part: ast.AST, depth: int) -> bool:
    """Whether a sharded model is run in a part of the program or the functions it calls."""
    for call in (n for n in ast.walk(part) if isinstance(n, ast.Call)):
        if not isinstance(project.sharded(module, run_by(call)), No):
            return True
        meant = project.links.functions.meant(module, call.func) if depth else ()
        if any(_runs_something(project, home, function, depth - 1) for home, function in meant):
            return True
    return False


def _is_evaluated(project: Project, module: Module, model: ast.expr) -> bool:
    holding = project.sharded(module, model)
    sites = holding.sites if isinstance(holding, Sharded | Maybe) else frozenset()
    run = evaluated(project)
    return run is not None and (not sites or not run or bool(sites & run))
