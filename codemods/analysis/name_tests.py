"""Conditions on the names of parameters in a loop over them. Pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from codemods.analysis.module import Module
from codemods.analysis.parameter_loops import ParameterLoop

_PREFIX = "_fsdp_wrapped_module"
_BEHIND_BLOCK = re.compile(r"\.\d+\.\w")
"""`layers.0.attention`: the blocks of a list are what units mostly are."""


def body_of(module: Module, loop: ParameterLoop) -> Iterator[ast.AST]:
    """Every node of what a loop does."""
    node = loop.node
    for part in node.body if isinstance(node, ast.For) else [module.parent(node)]:
        yield from ast.walk(part) if part is not None else ()


def test_of_name(module: Module, loop: ParameterLoop) -> ast.expr | None:
    """The first condition in a loop over `named_parameters()` that goes by what the name is."""
    for test in _tests(module, loop):
        asked = [n for n in ast.walk(test) if isinstance(n, ast.Name) and n.id == loop.name]
        if asked and not all(_is_looked_up(module, loop, n) for n in asked):
            return test
    return None


def test_of_whole_name(module: Module, loop: ParameterLoop) -> ast.expr | None:
    """The first condition that FSDP1's prefixes decide: it goes by a name as a whole, by how it begins, or
    by what stands on both sides of a dot."""
    for test in _tests(module, loop):
        if any(_is_whole(module, loop, node) for node in ast.walk(test)):
            return test
    return None


def _tests(module: Module, loop: ParameterLoop) -> Iterator[ast.expr]:
    """The conditions in a loop over names and parameters."""
    for node in body_of(module, loop) if loop.name is not None else ():
        match node:
            case ast.If(test=test) | ast.IfExp(test=test):
                yield test
            case ast.comprehension(ifs=tests):
                yield from tests


def _is_whole(module: Module, loop: ParameterLoop, node: ast.AST) -> bool:
    match node:
        case ast.Compare(left=ast.Constant(value=str(part)), ops=[ast.In() | ast.NotIn()]):
            is_name = isinstance(node.comparators[0], ast.Name) and node.comparators[0].id == loop.name
            return is_name and _BEHIND_BLOCK.search(part) is not None and _PREFIX not in part
        case ast.Compare(left=left, ops=[ast.Eq() | ast.NotEq() | ast.In() | ast.NotIn()]):
            sides = [left] if isinstance(node.ops[0], ast.In | ast.NotIn) else [left, *node.comparators]
            names = [one for one in sides if isinstance(one, ast.Name) and one.id == loop.name]
            return any(not _is_looked_up(module, loop, one) for one in names)
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="startswith"), args=[begin, *_]):
            return name == loop.name and _PREFIX not in ast.unparse(begin)
    return False


def _is_looked_up(module: Module, loop: ParameterLoop, name: ast.Name) -> bool:
    """Whether a name is only found again: `if name in kept: kept[name]`, by whatever name it was put there;
    or FSDP1's prefix is asked for, of which FM513 speaks."""
    for parent in module.ancestors(name):
        match parent:
            case ast.Compare(left=ast.Constant(value=str(part))) if part.removesuffix(".") == _PREFIX:
                return True
            case ast.Compare(left=key, ops=[ast.In() | ast.NotIn()], comparators=[kept]):
                entry = f"{ast.unparse(kept)}[{ast.unparse(key)}]"
                parts = (n for n in body_of(module, loop) if isinstance(n, ast.Subscript))
                return name is not kept and any(ast.unparse(part) == entry for part in parts)
            case ast.stmt():
                return False
    return False
