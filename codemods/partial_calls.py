"""What the calls of a `functools.partial(FSDP, ...)` give beside the module."""

from __future__ import annotations

import ast

from codemods.analysis.holding import WrapCall
from codemods.analysis.module import Module
from codemods.analysis.variable_reads import reads_of
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
        for module, read in reads_of(project, site.module, target):
            parent = module.parent(read)
            if isinstance(parent, ast.Call) and (parent.func is read or _is_partial(project, module, parent)):
                calls.append((module, parent))
            escapes = escapes or not (isinstance(parent, ast.Call) and parent.func is read)
    return calls, escapes and _gives_keywords_to_unknown(project)


def _is_partial(project: Project, module: Module, call: ast.Call) -> bool:
    symbol = project.resolve(module, call.func)
    return symbol is not None and symbol.name == "functools.partial"


def _gives_keywords_to_unknown(project: Project) -> bool:
    """Whether something that was not found is called with keywords of FSDP1's."""
    return any(
        keyword.arg in _OWN and project.resolve(module, call.func) is None
        for module in project.reading(*sorted(_OWN))
        for call in module.calls()
        for keyword in call.keywords
    )
