"""`load_sharded_optimizer_state_dict`, the old way to read sharded optimizer state from a DCP directory.

Source: `torch/distributed/checkpoint/optimizer.py`.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from codemods.analysis.flow import reaching
from codemods.analysis.module import Module
from codemods.analysis.state_dicts import argument
from codemods.editing.code import code, replace
from codemods.editing.loaded_groups import may_lack_schedule
from codemods.editing.state_dicts import API, Edits, Refused

if TYPE_CHECKING:
    from codemods.project import Project

OLD_SHARDED_LOAD = "torch.distributed.checkpoint.optimizer.load_sharded_optimizer_state_dict"


def is_read_sharded(project: Project, module: Module, state: ast.expr) -> bool:
    """Whether a state was read by `load_sharded_optimizer_state_dict` in the same function: shards, whatever
    kind of state dict is in force where it is loaded."""
    while isinstance(state, ast.Subscript):
        state = state.value
    found = module.scope_of(state).lookup(state.id) if isinstance(state, ast.Name) else None
    made = [binding.value for binding in reaching(module, *found, state)] if found is not None else []
    symbols = [project.resolve(module, v.func) if isinstance(v, ast.Call) else None for v in made]
    return bool(symbols) and all(s is not None and s.name == OLD_SHARDED_LOAD for s in symbols)


def load_sharded_optimizer(project: Project, module: Module, call: ast.Call) -> Edits:
    """`state = load_sharded_optimizer_state_dict(sd, "optim", reader)` reads into the optimizer's own state
    dict, and what it lacks of the saved groups by the helper."""
    statement = module.statement(call)
    key, reader = argument(call, 1, "optimizer_key"), argument(call, 2, "storage_reader")
    is_plain = isinstance(statement, ast.Assign) and statement.value is call and len(statement.targets) == 1
    if not is_plain or key is None or reader is None:
        return Refused("`load_sharded_optimizer_state_dict` is not assigned to a name")
    assert isinstance(statement, ast.Assign)
    subjects = _subjects(module, statement)
    if subjects is None:
        return Refused("which model and optimizer the sharded optimizer state is for is not written here")
    template = (
        f"{{target}} = {{{{{{key}}: {{{API}.get_optimizer_state_dict}}({{model}}, {{optim}})}}}}\n"
        "{torch.distributed.checkpoint}.load({target}, storage_reader={reader})"
    )
    if may_lack_schedule(project, module, call, subjects[1]):
        template = "{target} = {helper.read_sharded_optimizer}({model}, {optim}, {key}, {reader})"
    new = code(
        module,
        template,
        target=statement.targets[0],
        key=key,
        model=subjects[0],
        optim=subjects[1],
        reader=reader,
    )
    return [replace(module, statement, new)]


def _subjects(module: Module, statement: ast.Assign) -> tuple[ast.expr, ast.expr] | None:
    """Model and optimizer of the `optim_state_dict_to_load` below that takes what is read here."""
    function = module.function(statement) or module.tree
    names = {n.id for t in statement.targets for n in ast.walk(t) if isinstance(n, ast.Name)}
    below = [
        node
        for node in ast.walk(function)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("optim_state_dict_to_load", "flatten_sharded_optim_state_dict")
        and node.lineno > statement.lineno
    ]
    for node in sorted(below, key=lambda node: node.lineno):
        if names.isdisjoint(n.id for n in ast.walk(node) if isinstance(n, ast.Name)):
            continue
        assert isinstance(node.func, ast.Attribute)
        first = 1 if node.func.attr.startswith("flatten") else 0
        model, optim = argument(node, first, "model"), argument(node, first + 1, "optim")
        if model is not None and optim is not None:
            return model, optim
    return None
