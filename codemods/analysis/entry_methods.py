"""Calls of a sharded model's methods other than `forward` that compute with its parameters."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from codemods.analysis.holding import Instance, Sharded, WrapCall
from codemods.analysis.link import Links
from codemods.analysis.module import Module
from codemods.project import MethodCall, Project

_COMPUTES = re.compile(r"encode|decode|sample|predict|embed_|forward_|get_\w+_features")
"""Names of such methods where the model's class is not in the project."""

_ASKS_FOR_STATE = frozenset({"training", "config", "device", "dtype"})


INITIALISE = frozenset(
    {"reset_parameters", "init_weights", "initialize_weights", "init_parameters", "initialize_parameters"}
    | {"_init_weights", "reset_weights", "initialize_params"}
)
"""Names of methods that give parameters their first values."""
_IN_PLACE = re.compile(r"^(?!requires_grad_)[a-z]\w*_$")
_VALUES = re.compile(r"\.(?:data|weight|bias)\b|\bp(?:aram(?:eter)?)?\b")


@dataclass(frozen=True, slots=True)
class EntryMethod:
    """One method that is called on a sharded model.

    Attributes:
        call: the first call.
        places: the wraps, each with the statement behind which the method can be registered.
    """

    call: MethodCall
    name: str
    places: tuple[tuple[WrapCall, ast.Assign], ...]


def entry_methods(project: Project) -> list[EntryMethod]:
    """Methods to register at a wrap, so that they gather parameters as `forward` does."""
    found: dict[tuple[str, frozenset[WrapCall]], EntryMethod] = {}
    has_it: dict[str, bool] = {}
    for module in project.looked_at if project.wraps else ():
        for call in module.calls():
            if not isinstance(call.func, ast.Attribute):
                continue
            name = call.func.attr
            if not project.links.may_be_sharded(call.func.value):
                continue
            # Names first: most calls are of methods that no wrapped model has.
            if name not in has_it:
                has_it[name] = any(computes(project.links, site, name) for site in project.wraps)
            if not has_it[name]:
                continue
            holding = project.sharded(module, call.func.value)
            if not isinstance(holding, Sharded) or not holding.sites:
                continue
            if not any(computes(project.links, site, name) for site in holding.sites):
                continue
            places = tuple((s, p) for s in holding.sites if (p := _place(s)) is not None)
            if len(places) == len(holding.sites):
                entry = EntryMethod(MethodCall(module, call, call.func.value), name, places)
                found.setdefault((name, holding.sites), entry)
    return list(found.values())


_OF_EVERY_MODULE = frozenset(
    {"forward", "state_dict", "load_state_dict", "parameters", "named_parameters", "modules", "named_modules"}
    | {"train", "eval", "to", "cuda", "cpu", "apply", "children", "named_children", "buffers", "no_sync"}
    | {"named_buffers", "zero_grad", "requires_grad_", "clip_grad_norm_", "register_comm_hook", "half"}
    | {"float", "bfloat16", "check_is_root", "summon_full_params", "get_submodule", "register_buffer"}
)


def computes(links: Links, site: WrapCall, name: str) -> bool:
    """Whether a method of the wrapped model touches its parts itself, and not only by calling the model.

    Not one that writes to parameters: what is written to gathered ones is lost when they are sharded again.
    """
    if site.wrapped is None or name in _OF_EVERY_MODULE or name.startswith("_"):
        return False
    owners = [h for h in links.held(site.module, site.wrapped) if isinstance(h, Instance)]
    methods = [m for owner in owners for m in _methods(links, owner, name)]
    if methods:
        touches = any(_touches_parts(links, owner, m) for owner in owners for m in methods)
        return touches and not any(_writes(links, owner, m) for owner in owners for m in methods)
    return not owners and _COMPUTES.match(name) is not None


def is_known(links: Links, site: WrapCall, name: str) -> bool:
    """Whether the wrapped model's class is in the project and has the method."""
    return bool(methods_within(links, site, name))


def methods_within(links: Links, site: WrapCall, name: str) -> list[ast.FunctionDef]:
    """The methods of that name that the classes of the wrapped model have, their bases' included."""
    held = links.held(site.module, site.wrapped) if site.wrapped is not None else frozenset()
    owners = [h for h in held if isinstance(h, Instance)]
    return [method for owner in owners for method in _methods(links, owner, name)]


def _methods(links: Links, owner: Instance, name: str) -> Iterator[ast.FunctionDef]:
    for definition, _ in links.classes.lineage(owner.node, owner.module):
        for statement in definition.body:
            if isinstance(statement, ast.FunctionDef) and statement.name == name:
                decorators = {ast.unparse(d) for d in statement.decorator_list}
                if not decorators & {"property", "staticmethod", "classmethod"}:
                    yield statement


def _touches_parts(links: Links, owner: Instance, method: ast.FunctionDef, depth: int = 3) -> bool:
    for node in ast.walk(method):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=name)):
                inner = list(_methods(links, owner, name))
                if not inner and name not in _OF_EVERY_MODULE:
                    return True
                if depth and any(_touches_parts(links, owner, m, depth - 1) for m in inner):
                    return True
            case ast.For(iter=ast.Attribute(value=ast.Name(id="self"), attr=name)):
                return True
            case ast.Attribute(value=ast.Attribute(value=ast.Name(id="self"), attr=part), attr="weight"):
                return part not in _ASKS_FOR_STATE
    return False


def _writes(links: Links, owner: Instance, method: ast.FunctionDef, depth: int = 3) -> bool:
    """Whether a method changes parameters, itself or by the model's other methods."""
    for node in ast.walk(method):
        match node:
            case ast.Assign(targets=[ast.Attribute(attr="data"), *_]):
                return True
            case ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=name)) if depth:
                if any(_writes(links, owner, m, depth - 1) for m in _methods(links, owner, name)):
                    return True
            case ast.Call(func=ast.Attribute(value=changed, attr=name)):
                is_init = re.search(r"(?:^|\.)init$", ast.unparse(changed)) is not None
                is_value = _VALUES.search(ast.unparse(changed)) is not None
                if name in INITIALISE or (_IN_PLACE.search(name) and (is_init or is_value)):
                    return True
    return False


def _place(site: WrapCall) -> ast.Assign | None:
    """The statement of a wrap whose result gets one name."""
    statement = site.module.statement(site.node)
    if not isinstance(statement, ast.Assign) or statement.value is not site.node or site.kind != "call":
        return None
    targets = statement.targets
    is_named = len(targets) == 1 and isinstance(targets[0], ast.Name | ast.Attribute)
    return statement if is_named and _stands_alone(site.module, statement) else None


def _stands_alone(module: Module, statement: ast.stmt) -> bool:
    line = module.text[module.line_start(module.span(statement).start) : module.span(statement).start]
    return not line.strip()
