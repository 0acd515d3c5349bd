"""Which models are sharded within a part of the ranks, whose rank 0 need not be rank 0 of all.

Source: `torch/distributed/fsdp/_state_dict_utils.py` (`rank0_only` of a model's state dict asks for the rank
within the wrapper's process group; an optimizer's asks for that within its `group` argument),
`torch/distributed/checkpoint/state_dict.py` (`cpu_offload` and `broadcast_from_rank0` mean
rank 0 of all), torch 2.6 to 2.13."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from codemods.analysis.holding import No, WrapCall
from codemods.analysis.module import Module
from codemods.analysis.values import DictValue, Literal, Named, options

if TYPE_CHECKING:
    from codemods.project import Project

_WORLD = ("torch.distributed.group.WORLD", "torch.distributed.distributed_c10d.group.WORLD")


def is_within_group(project: Project, module: Module, model: ast.expr) -> bool:
    """Whether a wrap call that a model can come from names a process group, or a part of a device mesh."""
    holding = project.sharded(module, model)
    return not isinstance(holding, No) and any(_names_group(project, site) for site in holding.sites)


def _names_group(project: Project, site: WrapCall) -> bool:
    given: list[tuple[str, Module, ast.expr]] = []
    if site.kind == "call" and len(site.arguments) > 1:
        given.append(("process_group", site.module, site.arguments[1]))
    for keyword in site.settings.keywords:
        if keyword.arg is not None:
            given.append((keyword.arg, site.module, keyword.value))
            continue
        for value in options(project.evaluate(site.module, keyword.value)):
            if isinstance(value, DictValue):
                for name, origins in value.items.items():
                    given += [(name, origin.module, origin.node) for origin in origins]
    return any(
        is_group(project, module, node)
        for name, module, node in given
        if name in ("process_group", "device_mesh")
        if name == "process_group" or _is_part(project, module, node)
    )


def is_group(project: Project, module: Module, node: ast.expr) -> bool:
    """Whether an argument is a process group other than that of all ranks."""
    return any(
        not (isinstance(value, Literal) and value.value is None)
        and not (isinstance(value, Named) and value.symbol.name in _WORLD)
        for value in options(project.evaluate(module, node))
    )


def _is_part(project: Project, module: Module, node: ast.expr) -> bool:
    """Whether a mesh is some dimensions of another: `mesh["dp"]`."""
    return any(
        isinstance(value.origin.node, ast.Subscript) for value in options(project.evaluate(module, node))
    )
