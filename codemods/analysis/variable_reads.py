"""Every place that reads a variable, in whatever file and under whatever name."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from codemods.analysis.module import Module
from codemods.analysis.scopes import Binding, BindingKind, Scope

if TYPE_CHECKING:
    from codemods.project import Project

_FARTHEST = 10
"""Imports that are followed from one file to the next."""


def reads_of(project: Project, home: Module, target: ast.Name) -> Iterator[tuple[Module, ast.expr]]:
    """Every name and `module.name` that means what a name is bound to, read or not yet read files alike."""
    scope = home.scope_of(target)
    if scope is not home.scope:
        for node in home.named(target.id):
            found = home.scope_of(node).lookup(target.id) if _is_read(node, ast.Name) else None
            if found is not None and found[0] is scope:
                yield home, node
        return
    words = [target.id]
    for word in words:  # grows by the names that imports give it
        for module in {home: None, **dict.fromkeys(project.reading(word))}:
            words += [name for name in _renamed(module, word) if name not in words]
            for node in module.named(word):
                if _meant_by(project, module, node) is scope:
                    yield module, node


def _is_read(node: ast.Name | ast.Attribute, kind: type[ast.expr]) -> bool:
    return isinstance(node, kind) and isinstance(node.ctx, ast.Load)


def _renamed(module: Module, word: str) -> Iterator[str]:
    for scope in module.scopes():
        for name, bindings in scope.bindings.items():
            if name != word and any(
                b.kind is BindingKind.IMPORT and b.target.rpartition(".")[2] == word for b in bindings
            ):
                yield name


def _meant_by(project: Project, module: Module, node: ast.Name | ast.Attribute) -> Scope | None:
    """The scope in which the variable is bound that a place reads."""
    if _is_read(node, ast.Name):
        assert isinstance(node, ast.Name)
        found = module.scope_of(node).lookup(node.id)
        if found is None:
            return _starred(project, module, node.id, _FARTHEST)
        return _bound(project, module, *found, _FARTHEST)
    if _is_read(node, ast.Attribute):
        assert isinstance(node, ast.Attribute)
        base = project.resolve(module, node.value)
        if base is not None and base.module is not None and base.node is base.module.tree:
            return _at_top(project, base.module, node.attr, _FARTHEST)
    return None


def _at_top(project: Project, module: Module, name: str, steps: int) -> Scope | None:
    found = module.scope.lookup(name) if steps else None
    if found is None:
        return _starred(project, module, name, steps)
    return _bound(project, module, *found, steps)


def _bound(
    project: Project, module: Module, scope: Scope, bindings: list[Binding], steps: int
) -> Scope | None:
    imports = [b for b in bindings if b.kind is BindingKind.IMPORT]
    if not imports:
        return scope
    target = imports[-1].target
    holder = project.index.holder(module, target)
    return _at_top(project, holder, target.rpartition(".")[2], steps - 1) if holder is not None else scope


def _starred(project: Project, module: Module, name: str, steps: int) -> Scope | None:
    for star in module.scope.star_imports if steps else ():
        holder = project.index.find(star, module.path)
        found = _at_top(project, holder, name, steps - 1) if holder is not None else None
        if found is not None:
            return found
    return None
