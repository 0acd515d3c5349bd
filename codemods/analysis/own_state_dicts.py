"""Models whose class makes or loads its state dict in a way of its own.

Source: `torch/nn/modules/module.py` (a module asks its children by `state_dict(destination=...)` and loads
them by `_load_from_state_dict`: behind FSDP1's wrapper a method of the model's class gave nothing back and
loaded nothing) and `torch/distributed/checkpoint/state_dict.py` (`model.state_dict()`,
`model.load_state_dict(state_dict=..., strict=..., assign=...)`).
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from codemods.analysis.holding import Holding, Instance, Maybe, Sharded
from codemods.analysis.module import Module

if TYPE_CHECKING:
    from codemods.project import Project


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
    held = set(project.links.held(module, model))
    for site in holding.sites if isinstance(holding, Sharded | Maybe) else ():
        held |= project.links.held(site.module, site.wrapped) if site.wrapped is not None else frozenset()
    for one in (h for h in held if isinstance(h, Instance)):
        for home, method in project.links.classes.methods(one, name):
            owner = home.class_of(method)
            torchs = "set_model_state_dict" if name == "load_state_dict" else "get_model_state_dict"
            return (
                f"`{owner.name if owner is not None else name}` has a `{name}` of its own: FSDP1's wrapper "
                f"went past it, and torch's `{torchs}` calls it, with "
                + ("DTensors, `strict=` and `assign=`" if name == "load_state_dict" else "the shards")
            )
    return None
