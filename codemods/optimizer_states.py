"""Places that read what an optimizer keeps of a sharded parameter: `optimizer.state[p]["exp_avg"].norm()`.

Source: `torch/optim/optimizer.py` (`Optimizer.state`); states are DTensors as their parameters are.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.analysis.holding import No
from codemods.analysis.module import Module
from codemods.analysis.parameter_questions import FUNCTIONS, VALUES
from codemods.project import Project

_PLAIN = ("step", "lr", "betas", "eps")
"""States that are numbers, or tensors of one."""


def state_reads(project: Project, module: Module) -> Iterator[ast.AST]:
    """The first place behind each `optimizer.state` where a value of a state is asked for."""
    for state in module.attributes("state"):
        if isinstance(project.optimizer_of(module, state.value), No):
            continue
        entry, names = _entry(module, state)
        for part in ast.walk(module.function(state) or module.tree):
            is_tensor = isinstance(part, ast.Subscript) and (
                part.value is entry or (isinstance(part.value, ast.Name) and part.value.id in names)
            )
            read = _read(module, part) if is_tensor and isinstance(part, ast.Subscript) else None
            if read is not None:
                yield read
                break


def _entry(module: Module, state: ast.Attribute) -> tuple[ast.AST | None, set[str]]:
    """What is kept of one parameter, as an expression and by its names: `optimizer.state[p]`, or each of
    `optimizer.state.values()`."""
    holder = module.parent(state)
    if isinstance(holder, ast.Subscript) and holder.value is state:
        statement = module.parent(holder)
        is_named = isinstance(statement, ast.Assign) and statement.value is holder
        targets = statement.targets if is_named and isinstance(statement, ast.Assign) else []
        return holder, {target.id for target in targets if isinstance(target, ast.Name)}
    call = module.parent(holder) if isinstance(holder, ast.Attribute) else None
    loop = module.parent(call) if isinstance(call, ast.Call) else None
    if not isinstance(loop, ast.For | ast.comprehension) or not isinstance(holder, ast.Attribute):
        return None, set()
    match holder.attr, loop.target:
        case ("values", ast.Name(id=name)) | ("items", ast.Tuple(elts=[_, ast.Name(id=name)])):
            return None, {name}
    return None, set()


def _read(module: Module, tensor: ast.Subscript) -> ast.AST | None:
    """The place that asks a state for a value, if it does."""
    if not isinstance(tensor.slice, ast.Constant) or tensor.slice.value in _PLAIN:
        return None
    match module.parent(tensor):
        case ast.Attribute(attr=name) as read if name in VALUES:
            return read
        case ast.Call(func=ast.Attribute(attr=name)) as read if name in FUNCTIONS:
            return read
    return None
