"""Tied weights whose modules a policy can put into different units.

Source: `torch/distributed/fsdp/_fully_shard/_fsdp_init.py` (torch 2.13 raises for a parameter of two
groups; up to 2.9 the two ends silently become different parameters)."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.plain_tests import is_plain_test
from codemods.rule import CallValue, Finding, Literal, Module, Project, Value, finding, options, rule

_MESSAGE = (
    "these modules share a weight, and the wrap policy can make units of them: FSDP2 wants both in one unit"
)
_REMEDY = "keep both out of the policy, or shard them together: `fully_shard([first, second])`"
_ENDS = ("Embed", "Linear", "Head")


@rule(
    "tied weights",
    {"FM506": "tied weights that can end up in different units"},
    where={b"tie_weights": b"", b".weight": rb"\.weight[ \t]*="},
    needs_wraps=True,
)
def tied_weights(project: Project) -> Iterator[Finding]:
    """Two modules that share a weight must be in the same unit.

    With FSDP1 a weight shared between a unit and the root was handled or silently wrong; with FSDP2 it is
    an error on new releases of torch, and silently two weights on releases up to 2.9. Nothing is said where
    the policy only makes units of other classes, so that both ends stay in the root. Otherwise leave both
    modules out of the policy, or shard them together: `fully_shard([model.embed, model.head])`. A call of
    `tie_weights()` is looked at in the same way. Nothing is said in tests that do not speak of FSDP."""
    if not project.wraps:
        return
    classes = _unit_classes(project)
    groups = {project.group(site.module.path) for site in project.wraps}
    for module in project.looked_at:
        if project.group(module.path) not in groups or is_plain_test(module):
            continue
        for call in module.calls() if classes is not None and _can_match({""}, classes) else ():
            if isinstance(call.func, ast.Attribute) and call.func.attr == "tie_weights":
                yield finding(module, call, "FM506", _MESSAGE, remedy=_REMEDY)
        for node in module.nodes(ast.Assign):
            assert isinstance(node, ast.Assign)
            ends = _ends(node)
            if ends is None:
                continue
            names = {_class_of(project, module, node, end) for end in ends}
            if classes is not None and not _can_match(names, classes):
                continue
            yield finding(
                module,
                node,
                "FM506",
                _MESSAGE,
                remedy=_REMEDY,
                is_note=classes is None,  # the policy goes by something that cannot be followed
            )


def _unit_classes(project: Project) -> set[str] | None:
    """Names of the classes that policies make units of; None where a policy goes by something else."""
    found: set[str] = set()
    for site in project.wraps:
        told = next((k.value for k in site.node.keywords if k.arg == "auto_wrap_policy"), None)
        if told is None and any(k.arg is None for k in site.node.keywords):
            return None
        for value in options(project.evaluate(site.module, told)) if told is not None else ():
            classes = _classes(value) if isinstance(value, CallValue) else None
            if classes is None and not _is_none(value):
                return None
            found |= classes or set()
    return found


def _is_none(value: Value) -> bool:
    return isinstance(value, Literal) and value.value is None


def _classes(value: CallValue) -> set[str] | None:
    """Class names written in a policy's class argument, directly or through `functools.partial`."""
    given = [value.keywords[k] for k in ("transformer_layer_cls", "module_classes") if k in value.keywords]
    if value.function.name.endswith("ModuleWrapPolicy"):
        given += value.arguments[:1]
    if len(given) != 1 or not isinstance(given[0], ast.Set | ast.Tuple | ast.List):
        return None
    return {ast.unparse(element).rpartition(".")[2] for element in given[0].elts}


def _can_match(names: set[str], classes: set[str]) -> bool:
    """Whether a policy by class can make a unit of one of the modules.

    One that is not seen is an embedding or a linear layer.
    """
    if names & classes:
        return True
    return "" in names and any(word in name for name in classes for word in _ENDS)


def _ends(node: ast.Assign) -> tuple[ast.expr, ast.expr] | None:
    """The two modules of `self.a.weight = self.b.weight`."""
    target, value = node.targets[0], node.value
    if not (isinstance(target, ast.Attribute) and isinstance(value, ast.Attribute)):
        return None
    if target.attr != "weight" or value.attr != "weight":
        return None
    if not isinstance(target.value, ast.Attribute | ast.Call) or ast.unparse(target.value) == "self":
        return None
    if len({_root(target.value), _root(value.value), "self"}) == 3:
        return None  # one model is given what another has
    return target.value, value.value


def _root(end: ast.expr) -> str:
    """The variable that a module is reached through; `self` where it is reached otherwise."""
    node = end
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) and node is not end else "self"


def _class_of(project: Project, module: Module, node: ast.AST, end: ast.expr) -> str:
    """The class name a module attribute was built with, in the same class or a base; empty where that is not
    seen."""
    owner, text = module.class_of(node), ast.unparse(end)
    waiting = [(module, owner)] if owner is not None else []
    seen: list[ast.ClassDef] = []
    while waiting:
        home, definition = waiting.pop()
        seen.append(definition)
        for statement in ast.walk(definition):
            if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Call):
                continue
            if any(ast.unparse(t) == text for t in statement.targets):
                return ast.unparse(statement.value.func).rpartition(".")[2]
        for base in definition.bases:
            symbol = project.resolve(home, base)
            if symbol is None or symbol.module is None or symbol.node in seen:
                continue
            if isinstance(symbol.node, ast.ClassDef):
                waiting.append((symbol.module, symbol.node))
    return ""
