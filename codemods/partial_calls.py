"""What the calls of a `functools.partial(FSDP, ...)` give beside the module."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from codemods.analysis.holding import WrapCall
from codemods.analysis.module import Module
from codemods.analysis.variable_reads import reads_of
from codemods.project import Project
from codemods.shard_call import SIGNATURE

_OWN = frozenset(SIGNATURE[3:]) - {"device_id", "device_mesh"}
"""Keywords that hardly another function has."""
_DEEPEST = 8


@dataclass(frozen=True, slots=True, eq=False)
class PartialCall:
    """A call of what a `partial` is bound to, or a further partial of it.

    Attributes:
        first: the parameter that its first argument by position is for; 0 is the module.
        arguments: what it gives by position.
    """

    module: Module
    call: ast.Call
    first: int
    arguments: tuple[ast.expr, ...]


def calls_of_partial(project: Project, site: WrapCall) -> tuple[list[PartialCall], bool]:
    """The calls of what a `partial` is bound to, further partials of it among them; and whether there can be
    others that give keywords of FSDP1's."""
    calls, escapes = _calls(project, site.module, site.node, len(site.arguments), _DEEPEST)
    return calls, escapes and _gives_keywords_to_unknown(project)


def _calls(
    project: Project, home: Module, made: ast.Call, first: int, depth: int
) -> tuple[list[PartialCall], bool]:
    """The calls of one `partial`, and whether it is handed on to where they are not seen.

    Args:
        first: how many parameters it gives by position already.
    """
    around = home.parent(made)
    if isinstance(around, ast.Call) and around.func is made:
        return [PartialCall(home, around, first, tuple(around.args))], False
    if not isinstance(around, ast.Assign) or not all(isinstance(t, ast.Name) for t in around.targets):
        return [], True
    found: list[PartialCall] = []
    escapes = False
    for target in around.targets:
        assert isinstance(target, ast.Name)
        for module, read in reads_of(project, home, target):
            parent = module.parent(read)
            if isinstance(parent, ast.Call) and parent.func is read:
                found.append(PartialCall(module, parent, first, tuple(parent.args)))
            elif depth and isinstance(parent, ast.Call) and _is_partial(project, module, parent):
                given = tuple(parent.args[1:])
                found.append(PartialCall(module, parent, first, given))
                inner, goes_on = _calls(project, module, parent, first + len(given), depth - 1)
                found += inner
                escapes = escapes or goes_on
            else:
                escapes = True
    return found, escapes


def positional(project: Project, site: WrapCall) -> list[tuple[int, Module, ast.expr]]:
    """What a `partial` and its calls give by position, and which parameter each of them is for: 0 is the
    module."""
    own = [(position, site.module, node) for position, node in enumerate(site.arguments)]
    for taken in calls_of_partial(project, site)[0]:
        own += [(position, taken.module, node) for position, node in enumerate(taken.arguments, taken.first)]
    return own


def named_modules(project: Project, site: WrapCall) -> list[tuple[Module, ast.keyword]]:
    """Where a call of a `partial` gives the module by name."""
    calls = calls_of_partial(project, site)[0]
    return [(taken.module, k) for taken in calls for k in taken.call.keywords if k.arg == "module"]


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
