"""Models whose class makes or loads its state dict in a way of its own.

Source: `torch/nn/modules/module.py` (a module asks its children by `state_dict(destination=...)` and loads
them by `_load_from_state_dict`: behind FSDP1's wrapper a method of the model's class gave nothing back and
loaded nothing) and `torch/distributed/checkpoint/state_dict.py` (`model.state_dict()`,
`model.load_state_dict(state_dict=..., strict=..., assign=...)`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from codemods.analysis.holding import HeldSet, Holding, Instance, Maybe, Sharded
from codemods.analysis.module import Module

if TYPE_CHECKING:
    from codemods.project import Project

_MOST = 8
"""Classes that a library's model can be of, from which on none is meant."""


def own_state_dict(
    project: Project, module: Module, model: ast.expr, holding: Holding, name: str
) -> str | None:
    """Why a call cannot become torch's function, where the model's class has such a method itself.

    Args:
        holding: of the model.
        name: `state_dict` or `load_state_dict`.
    """
    if not project.links.shelf.may_define(name):
        return None
    torchs = "set_model_state_dict" if name == "load_state_dict" else "get_model_state_dict"
    for site in holding.sites if isinstance(holding, Sharded | Maybe) else ():
        wrapped = project.links.held(site.module, site.wrapped) if site.wrapped is not None else frozenset()
        for owner, _ in _methods(project, wrapped, name):
            return (
                f"`{name}` is `{owner}`'s own method: FSDP1's wrapper went past it, and `{torchs}` calls it"
            )
    around = _methods(project, project.links.held(module, model), name)
    for owner, method in around if name == "load_state_dict" else ():
        if not _takes_what_torch_gives(method):
            return f"`{owner}` has a `{name}` of its own, which `{torchs}` calls with `strict=` and `assign=`"
    return None


def _methods(project: Project, held: HeldSet, name: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    """The methods of that name of models among some objects, each with the name of its class."""
    models = [one for one in held if isinstance(one, Instance) and _is_module(project, one)]
    for one in models if len(models) <= _MOST else ():
        for home, method in project.links.classes.methods(one, name):
            owner = home.class_of(method)
            if isinstance(method, ast.FunctionDef) and owner is not None:
                yield owner.name, method


def _is_module(project: Project, instance: Instance) -> bool:
    outside = project.links.classes.outside_bases(instance.node, instance.module)
    return any(name.endswith(("Module", "Model")) for name in outside)


def _takes_what_torch_gives(method: ast.FunctionDef) -> bool:
    names = {a.arg for a in (*method.args.args, *method.args.kwonlyargs)}
    return method.args.kwarg is not None or {"state_dict", "strict", "assign"} <= names
