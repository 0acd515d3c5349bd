"""Loops and comprehensions over the parameters of a model, however they are reached."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from codemods.analysis.module import Module

if TYPE_CHECKING:
    from codemods.project import Project


@dataclass(frozen=True, slots=True, eq=False)
class ParameterLoop:
    """A loop over parameters.

    Attributes:
        owner: the model whose parameters they are.
        parameters: names that a parameter has in the loop.
        name: the variable that holds a parameter's name, if there is one.
    """

    node: ast.For | ast.comprehension
    owner: ast.expr
    parameters: frozenset[str]
    name: str | None = None


def parameter_loops(project: Project, module: Module) -> Iterator[ParameterLoop]:
    """Every loop of a module over `m.parameters()`, `m.named_parameters()` or a list of some of them,
    enumerated and zipped too."""
    for kind in (ast.For, ast.comprehension):
        for node in module.nodes(kind):
            assert isinstance(node, ast.For | ast.comprehension)
            for target, source in looped_over(node.target, node.iter):
                for owner in project.links.parameters.iterated(module, source):
                    if isinstance(target, ast.Name) and project.links.parameters.is_mapping(module, source):
                        yield ParameterLoop(node, owner, frozenset(), target.id)
                    else:
                        yield loop_of(node, owner, target)


def loop_of(node: ast.For | ast.comprehension, owner: ast.expr, target: ast.expr) -> ParameterLoop:
    """A loop that gives parameters to a target: `p`, or `name, p`."""
    name = None
    if isinstance(target, ast.Tuple) and len(target.elts) == 2 and isinstance(target.elts[0], ast.Name):
        name, target = target.elts[0].id, target.elts[1]
    names = frozenset(n.id for n in ast.walk(target) if isinstance(n, ast.Name))
    return ParameterLoop(node, owner, names, name)


def looped_over(target: ast.expr, source: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What is looped over beside the target it is given to, through `enumerate` and `zip`."""
    match source, target:
        case ast.Call(func=ast.Name(id="enumerate"), args=[inner, *_]), ast.Tuple(elts=[_, rest]):
            yield from looped_over(rest, inner)
        case ast.Call(func=ast.Name(id="zip"), args=[*sources]), ast.Tuple(elts=[*targets]):
            for one, other in zip(targets, sources, strict=False):
                yield from looped_over(one, other)
        case _:
            yield target, source
