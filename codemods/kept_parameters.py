"""Loops over parameters of sharded models that were kept before, calls that send such a parameter, and
questions for the shape of one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from codemods.analysis.far_parameters import FarParameters, live
from codemods.analysis.holding import Holding, No
from codemods.analysis.module import Module, last_name
from codemods.analysis.parameter_lists import NAMES
from codemods.analysis.parameter_loops import ParameterLoop, loop_of, looped_over
from codemods.analysis.parameter_questions import SHAPES
from codemods.parts_of_models import model_of
from codemods.project import Project

_SAYING = re.compile(r"para|weight|shadow|master|trainable|grad")
"""In names of what such loops go over: others are not looked up."""
_MEMO = "parameters are taken"
_KEPT = "names of kept parameters"
_SENDING = (
    *("isend", "irecv", "send", "recv", "broadcast", "all_reduce", "reduce", "gather", "all_gather"),
    *("all_gather_into_tensor", "reduce_scatter_tensor"),
)


def kept_loops(project: Project, module: Module) -> Iterator[tuple[ParameterLoop, Holding]]:
    """Loops whose parameters an attribute, a caller or another function has, and whose they are; what is
    looped over stands for the model."""
    for kind in (ast.For, ast.comprehension) if are_taken(project) else ():
        for node in module.nodes(kind):
            assert isinstance(node, ast.For | ast.comprehension)
            for target, source in looped_over(node.target, node.iter):
                kept = _container(source, _kept_names(project))
                if kept is None or any(True for _ in project.links.parameters.iterated(module, source)):
                    continue
                holding = holder_of(project, FarParameters(project.links).within(module, kept))
                if not isinstance(holding, No):
                    yield loop_of(node, source, target), holding


def sent(project: Project) -> Iterator[tuple[Module, ast.Call]]:
    """Calls of `torch.distributed` that are given a parameter of a sharded model."""
    for name in _SENDING if are_taken(project) else ():
        for module, call in project.calls_of(f"torch.distributed.{name}"):
            for given in (*call.args[:2], *(keyword.value for keyword in call.keywords)):
                found = FarParameters(project.links).element(module, given)
                if not isinstance(holder_of(project, found), No):
                    yield module, call
                    break


def shapes_by_key(project: Project, module: Module) -> Iterator[ast.Attribute]:
    """`params[name].ndim`, and `p.ndim` behind `p = params[name]`, of a dict of a sharded model's parameters;
    one of each statement."""
    told: set[ast.stmt] = set()
    for node in module.attributes(*SHAPES) if are_taken(project) else ():
        asked = _assigned(module, node.value)
        if not isinstance(asked, ast.Subscript) or module.statement(node) in told:
            continue
        if _SAYING.search(last_name(asked.value).lower()):
            found = FarParameters(project.links).element(module, asked)
            if not isinstance(holder_of(project, found), No):
                told.add(module.statement(node))
                yield node


def _assigned(module: Module, node: ast.expr) -> ast.expr:
    """What a name was assigned, where that is one value; else the expression itself."""
    values = [binding.value for binding in live(module, node)] if isinstance(node, ast.Name) else []
    return values[0] if len(values) == 1 and values[0] is not None else node


def are_taken(project: Project) -> bool:
    """Whether the parameters of a sharded model, or of a part of one, are taken anywhere."""
    found = project.memo.get(_MEMO)
    if not isinstance(found, bool):
        owners = (n.value for home in project.looked_at for n in home.attributes(*NAMES))
        found = project.memo[_MEMO] = bool(project.wraps) or any(_may_be_part(project, o) for o in owners)
    return found


def _may_be_part(project: Project, owner: ast.expr) -> bool:
    while not project.links.may_be_sharded(owner):
        if not isinstance(owner, ast.Attribute | ast.Subscript):
            return False
        owner = owner.value
    return True


def holder_of(project: Project, owners: Iterator[tuple[Module, ast.expr]]) -> Holding:
    """The first sharded model among those that parameters can be of."""
    for home, owner in owners:
        holding = model_of(project, home, owner)[1]
        if not isinstance(holding, No):
            return holding
    return No()


def _kept_names(project: Project) -> frozenset[str]:
    """Names that parameters are assigned to somewhere: `self.table = dict(model.named_parameters())`."""
    found = project.memo.get(_KEPT)
    if not isinstance(found, frozenset):
        statements = {
            (module, module.statement(node))
            for module in project.looked_at
            for node in module.attributes(*NAMES)
        }
        found = project.memo[_KEPT] = frozenset(
            last_name(target)
            for module, statement in statements
            if isinstance(statement, ast.Assign)
            and any(True for _ in project.links.parameters.iterated(module, statement.value))
            for target in statement.targets
            if isinstance(target, ast.Attribute)
        )
    return found


def _container(source: ast.expr, names: frozenset[str]) -> ast.expr | None:
    """`self.params` of itself, `self.params.items()` and `self.params.values()`, where its name says that it
    holds parameters, or is one of some names."""
    match source:
        case ast.Call(func=ast.Attribute(value=inner, attr="items" | "values"), args=[]):
            source = inner
    name = last_name(source)
    return source if _SAYING.search(name.lower()) or name in names else None
