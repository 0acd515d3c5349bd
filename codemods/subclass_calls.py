"""Calls of classes that derive from FSDP1's wrapper: they are left to a person, with what is written in them.
Pure."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from typing import TypeAlias

from codemods.analysis.module import Module
from codemods.project import Project
from codemods.shard_call import SIGNATURE
from codemods.shared_types import taken_types
from codemods.torch_names import FSDP

Calls: TypeAlias = "list[tuple[Module, ast.Call]]"


def subclass_calls(project: Project) -> dict[ast.ClassDef, Calls]:
    """What makes objects of each class that derives from FSDP1's wrapper directly, or of its heirs."""
    found: dict[ast.ClassDef, Calls] = {}
    for use in project.uses(FSDP):
        parent = use.module.parent(use.node)
        if isinstance(parent, ast.ClassDef) and any(base is use.node for base in parent.bases):
            classes = {parent, *(heir for heir, _ in project.links.classes.heirs(parent, use.module))}
            found[parent] = list(_calls(project, classes))
    return found


def is_in_heir(project: Project, module: Module, node: ast.AST) -> bool:
    """Whether a place is in a class that derives from FSDP1's wrapper, however indirectly."""
    owner = module.class_of(node)
    return owner is not None and FSDP in project.links.classes.outside_bases(owner, module)


def taken_by(project: Project, calls: Calls) -> frozenset[str]:
    """The types whose values calls take from elsewhere."""
    found: frozenset[str] = frozenset()
    for module, call in calls:
        names = {keyword.arg or "**" for keyword in call.keywords} | set(SIGNATURE[: len(call.args)])
        names |= {"**" for argument in call.args if isinstance(argument, ast.Starred)}
        found |= taken_types(project, module, call, names)
    return found


def _calls(project: Project, classes: Collection[ast.ClassDef]) -> Iterator[tuple[Module, ast.Call]]:
    names = [node.name for node in classes]
    for module in project.reading(*names):
        for call in module.calls() if any(name in module.text for name in names) else ():
            if _is_own_init(module, call, classes) or any(
                _is_among(project, module, node, classes) for node in (call.func, *call.args[:1])
            ):
                yield module, call


def _is_own_init(module: Module, call: ast.Call, classes: Collection[ast.ClassDef]) -> bool:
    """`super().__init__(...)` in one of the classes."""
    is_init = isinstance(call.func, ast.Attribute) and call.func.attr == "__init__"
    return is_init and module.class_of(call) in classes


def _is_among(project: Project, module: Module, node: ast.expr, classes: Collection[ast.ClassDef]) -> bool:
    """Whether a called thing, or the first argument of `partial`, is one of the classes."""
    if not isinstance(node, ast.Name | ast.Attribute):
        return False
    symbol = project.resolve(module, node)
    return symbol is not None and symbol.node in classes
