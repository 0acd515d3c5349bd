"""The project's own optimizers: classes that derive from torch's, and the loops over their parameter groups.

Source: `torch/optim/optimizer.py` (`Optimizer.param_groups`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from codemods.analysis.called_classes import classes_called
from codemods.analysis.flow import reaching
from codemods.analysis.holding import Holding, Maybe, No, Sharded, WrapCall
from codemods.analysis.module import Module
from codemods.analysis.scopes import BindingKind
from codemods.analysis.spread_marks import OPTIMIZER

if TYPE_CHECKING:
    from codemods.project import Project

_MEMO = "own optimizers"


def group_owners(module: Module, group: ast.expr) -> Iterator[ast.expr]:
    """`x` where an expression is a parameter group of x: `x.param_groups[0]`, or what a loop over them gives,
    numbered or beside something else."""
    match group:
        case ast.Subscript(value=ast.Attribute(value=owner, attr="param_groups")):
            yield owner
        case ast.Name():
            found = module.scope_of(group).lookup(group.id)
            for binding in reaching(module, *found, group) if found is not None else ():
                if binding.kind is BindingKind.LOOP and binding.value is not None:
                    yield from _owners_of_groups(binding.value, binding.unpack)


def _owners_of_groups(groups: ast.expr, unpack: tuple[int, ...]) -> Iterator[ast.expr]:
    match groups:
        case ast.Attribute(value=owner, attr="param_groups") if not unpack:
            yield owner
        case ast.Call(func=ast.Name(id="enumerate"), args=[inner, *_]) if unpack[:1] == (1,):
            yield from _owners_of_groups(inner, unpack[1:])
        case ast.Call(func=ast.Name(id="zip"), args=[*inners]) if unpack and unpack[0] < len(inners):
            yield from _owners_of_groups(inners[unpack[0]], unpack[1:])


def trained(project: Project, module: Module, owner: ast.expr) -> Holding:
    """Whether `x` of `x.param_groups`, or `self` in its own class, is an optimizer of a sharded model."""
    groups = module.parent(owner)
    if not isinstance(groups, ast.Attribute) or groups.attr != "param_groups":
        return No()
    if not isinstance(owner, ast.Name) or owner.id != "self":
        return project.optimizer_of(module, owner)
    node = module.class_of(owner)
    return own_optimizers(project).get(node, (module, No()))[1] if node is not None else No()


def own_optimizers(project: Project) -> dict[ast.ClassDef, tuple[Module, Holding]]:
    """The project's classes, with their bases, of which an optimizer of a sharded model is made."""
    known = project.memo.get(_MEMO)
    if not isinstance(known, dict):
        known = project.memo[_MEMO] = _own_optimizers(project)
    return known


def _own_optimizers(project: Project) -> dict[ast.ClassDef, tuple[Module, Holding]]:
    links, found = project.links, dict[ast.ClassDef, tuple[Module, Holding]]()
    for module in project.looked_at:
        for call in module.calls():
            if links.spread is None or not links.spread.has(call, OPTIMIZER):
                continue
            called = classes_called(links, module, call)
            own = [(s.node, s.module) for s in called if s.module and isinstance(s.node, ast.ClassDef)]
            sites: set[WrapCall] = set()
            for owner in links.parameters.owners(module, call) if own else ():
                holding = project.sharded(*owner)
                sites |= holding.sites if isinstance(holding, Sharded | Maybe) else set()
            for node, home in (pair for one in own for pair in links.classes.lineage(*one)) if sites else ():
                before = found.get(node, (home, Maybe(frozenset())))[1]
                assert isinstance(before, Maybe)
                found[node] = home, Maybe(before.sites | sites)
    return found
