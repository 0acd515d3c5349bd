"""The functions of the project that a call can give its arguments to."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

from codemods.analysis.arguments import is_bound_call, is_static
from codemods.analysis.holding import Instance
from codemods.analysis.module import Module
from codemods.analysis.scopes import FunctionNode
from codemods.analysis.shelf import Before

if TYPE_CHECKING:
    from codemods.analysis.link import Links

_PATIENCE, _PATIENCE_PER_FILE = 60_000, 100
"""Answers about what expressions hold, in all or for each file, after which a method is told by its name
alone: in a tree of thousands of modules that call each other nothing else ends soon."""
FunctionAt: TypeAlias = "tuple[Module, FunctionNode, bool]"
"""Module, function, and whether the first parameter is filled by the object that a method is called on."""


def given_functions(links: Links, module: Module, call: ast.Call) -> Iterator[FunctionAt]:
    """Every function for which `Functions.calls` may name a call."""
    function = call.func
    symbol = links.index.resolve(module, function)
    if symbol is not None:
        if symbol.module is None:
            return
        if isinstance(symbol.node, ast.FunctionDef | ast.AsyncFunctionDef):
            bound = is_bound_call(links.index, symbol.module, symbol.node, module, call)
            yield symbol.module, symbol.node, bound
        elif isinstance(symbol.node, ast.ClassDef):
            for home, method in links.classes.methods(Instance(symbol.node, symbol.module), "__init__"):
                yield home, method, True
    elif isinstance(function, ast.Lambda):
        yield module, function, False
    elif isinstance(function, ast.Name):
        yield from _by_name(links, module, function)
    if isinstance(function, ast.Attribute):
        yield from _methods(links, module, function)


def _by_name(links: Links, module: Module, name: ast.Name) -> Iterator[FunctionAt]:
    """A lambda that a variable holds, or the constructors that `cls` can mean."""
    found = module.scope_of(name).lookup(name.id)
    for binding in found[1] if found is not None else ():
        if isinstance(binding.value, ast.Lambda):
            yield module, binding.value, False
    owner = module.class_of(name) if name.id == "cls" else None
    if owner is not None:
        for home, method in _in_family(links, module, owner, "__init__"):
            yield home, method, True


def _methods(links: Links, module: Module, function: ast.Attribute) -> Iterator[FunctionAt]:
    receiver, name = function.value, function.attr
    is_super = isinstance(receiver, ast.Call) and getattr(receiver.func, "id", "") == "super"
    if is_super or (isinstance(receiver, ast.Name) and receiver.id in ("self", "cls")):
        owner = module.class_of(function)
        if owner is not None:
            for home, method in _in_family(links, module, owner, name):
                yield home, method, not is_static(method)
            return
    if not links.shelf.where(name, just_before=Before.A_DEFINITION):
        return
    if links.asked > max(_PATIENCE, _PATIENCE_PER_FILE * len(links.shelf.paths)):
        yield from _of_that_name(links, module, name)
        return
    for home, method in links.classes.methods_of(links.held(module, receiver), name):
        yield home, method, not is_static(method)


def _of_that_name(links: Links, module: Module, name: str) -> Iterator[FunctionAt]:
    """Every method of a name in what is parsed and can run with a file: more than can be meant, for less
    work."""
    together = links.shelf.together(module.path)
    paths = (p for p in links.shelf.where(name, just_before=Before.A_DEFINITION) if p in together)
    for home in links.shelf.read(paths):
        for kind in (ast.FunctionDef, ast.AsyncFunctionDef):
            for method in home.nodes(kind):
                assert isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef)
                if method.name == name and isinstance(home.parent(method), ast.ClassDef):
                    yield home, method, not is_static(method)


def _in_family(
    links: Links, module: Module, owner: ast.ClassDef, name: str
) -> list[tuple[Module, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """The methods of that name of a class, its bases and heirs, and theirs."""
    family = links.classes.family(Instance(owner, module, is_exact=False))
    others = [links.classes.inherited(owner, module, name)]
    found = [
        (home, statement)
        for node, home in family
        for statement in node.body
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef) and statement.name == name
    ]
    return list(dict.fromkeys([*found, *(one for methods in others for one in methods)]))
