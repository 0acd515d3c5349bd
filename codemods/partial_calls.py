"""What the calls of a `functools.partial(FSDP, ...)` give beside the module."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.analysis.holding import WrapCall
from codemods.analysis.module import Module
from codemods.analysis.scopes import BindingKind
from codemods.project import Project
from codemods.shard_call import SIGNATURE

_OWN = frozenset(SIGNATURE[3:]) - {"device_id", "device_mesh"}
"""Keywords that hardly another function has."""


def calls_of_partial(project: Project, site: WrapCall) -> tuple[list[tuple[Module, ast.Call]], bool]:
    """The calls of what a `partial` is bound to, further partials of it among them; and whether there can be
    others that give keywords of FSDP1's."""
    around = site.module.parent(site.node)
    if isinstance(around, ast.Call) and around.func is site.node:
        return [(site.module, around)], False
    if not isinstance(around, ast.Assign) or not all(isinstance(t, ast.Name) for t in around.targets):
        return [], _gives_keywords_to_unknown(project)
    calls: list[tuple[Module, ast.Call]] = []
    escapes = False
    for target in around.targets:
        assert isinstance(target, ast.Name)
        for module, read in _reads(project, site.module, target):
            parent = module.parent(read)
            if isinstance(parent, ast.Call) and (parent.func is read or _is_partial(project, module, parent)):
                calls.append((module, parent))
            escapes = escapes or not (isinstance(parent, ast.Call) and parent.func is read)
    return calls, escapes and _gives_keywords_to_unknown(project)


def _reads(project: Project, home: Module, target: ast.Name) -> Iterator[tuple[Module, ast.expr]]:
    """Every place that reads a name, in its own module and in those that import it."""
    scope = home.scope_of(target)
    for module in list(project.modules.values()):
        if module is not home and target.id not in module.text:
            continue
        for node in (*module.nodes(ast.Name), *module.nodes(ast.Attribute)):
            if not isinstance(node, ast.Name | ast.Attribute) or not isinstance(node.ctx, ast.Load):
                continue
            if isinstance(node, ast.Attribute):
                if node.attr == target.id:
                    symbol = project.resolve(module, node.value)
                    if symbol is not None and symbol.node is home.tree:
                        yield module, node
                continue
            found = module.scope_of(node).lookup(node.id)
            if found is None:
                continue
            if module is home:
                if node.id == target.id and found[0] is scope:
                    yield module, node
                continue
            origins = [b.target for b in found[1] if b.kind is BindingKind.IMPORT]
            if any(_is_of(project, module, home, target.id, origin) for origin in origins):
                yield module, node


def _is_of(project: Project, module: Module, home: Module, name: str, origin: str) -> bool:
    """Whether `package.module.name`, imported somewhere, is that name of a module of the project."""
    head, _, last = origin.rpartition(".")
    if last != name:
        return False
    return project.index.find(head if head.strip(".") else f"{head}.", module.path) is home


def _is_partial(project: Project, module: Module, call: ast.Call) -> bool:
    symbol = project.resolve(module, call.func)
    return symbol is not None and symbol.name == "functools.partial"


def _gives_keywords_to_unknown(project: Project) -> bool:
    """Whether something that was not found is called with keywords of FSDP1's."""
    return any(
        keyword.arg in _OWN and project.resolve(module, call.func) is None
        for module in list(project.modules.values())
        for call in module.calls()
        for keyword in call.keywords
    )
