"""Conditions on the names of parameters in a loop over them. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.analysis.module import Module
from codemods.analysis.parameter_loops import ParameterLoop


def body_of(module: Module, loop: ParameterLoop) -> Iterator[ast.AST]:
    """Every node of what a loop does."""
    node = loop.node
    for part in node.body if isinstance(node, ast.For) else [module.parent(node)]:
        yield from ast.walk(part) if part is not None else ()


def test_of_name(module: Module, loop: ParameterLoop) -> ast.expr | None:
    """The first condition in a loop over `named_parameters()` that goes by what the name is."""
    if loop.name is None:
        return None
    for node in body_of(module, loop):
        match node:
            case ast.If(test=test) | ast.IfExp(test=test):
                tests = [test]
            case ast.comprehension(ifs=tests):
                pass
            case _:
                continue
        for test in tests:
            asked = [n for n in ast.walk(test) if isinstance(n, ast.Name) and n.id == loop.name]
            if asked and not all(_is_looked_up(module, loop, n) for n in asked):
                return test
    return None


def _is_looked_up(module: Module, loop: ParameterLoop, name: ast.Name) -> bool:
    """Whether a name is only found again: `if name in kept: kept[name]`, by whatever name it was put there;
    or FSDP1's prefix is asked for, of which FM513 speaks."""
    for parent in module.ancestors(name):
        match parent:
            case ast.Compare(left=ast.Constant(value="_fsdp_wrapped_module" | "_fsdp_wrapped_module.")):
                return True
            case ast.Compare(left=key, ops=[ast.In() | ast.NotIn()], comparators=[kept]):
                entry = f"{ast.unparse(kept)}[{ast.unparse(key)}]"
                parts = (n for n in body_of(module, loop) if isinstance(n, ast.Subscript))
                return name is not kept and any(ast.unparse(part) == entry for part in parts)
            case ast.stmt():
                return False
    return False
