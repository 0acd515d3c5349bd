"""Classes that stand in the body of another one and are named through its objects: `self.Models(...)`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.analysis.classes import ClassAt, Classes
from codemods.analysis.module import Module


def meant_by_self(classes: Classes, module: Module, node: ast.expr) -> list[ClassAt]:
    """The classes that `self.Models` can mean: those of that name in the bodies of the object's classes."""
    if not (isinstance(node, ast.Attribute) and _is_own(node.value)):
        return []
    owner = module.class_of(node)
    family = classes.family(classes.instance(owner, module, is_exact=False)) if owner is not None else []
    return [
        (inner, home)
        for outer, home in family
        for inner in outer.body
        if isinstance(inner, ast.ClassDef) and inner.name == node.attr
    ]


def made_by_self(classes: Classes, node: ast.ClassDef, module: Module) -> Iterator[tuple[Module, ast.Call]]:
    """The calls `self.Models(...)` of such a class."""
    outer = module.parent(node)
    if not isinstance(outer, ast.ClassDef):
        return
    family = dict(classes.family(classes.instance(outer, module, is_exact=False)))
    for home in dict.fromkeys(sorted(family.values(), key=lambda home: home.path)):
        for used in home.attributes(node.name):
            call = home.parent(used)
            if not isinstance(call, ast.Call) or call.func is not used:
                continue
            if _is_own(used.value) and home.class_of(used) in family:
                yield home, call


def _is_own(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")
