"""Which argument a call gives to which parameter, what functions return."""

from __future__ import annotations

import ast

from codemods.analysis.module import Module


def returns_of(module: Module, function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.expr]:
    """The expressions a function returns, its inner functions' left out."""
    found = []
    for node in module.nodes(ast.Return):
        if isinstance(node, ast.Return) and node.value is not None and module.function(node) is function:
            found.append(node.value)
    return found


def is_bound_call(module: Module, function: ast.AST, call: ast.Call) -> bool:
    """Whether the first parameter is filled by the object the method is called on (or by construction)."""
    if not isinstance(module.parent(function), ast.ClassDef):
        return False
    decorators = getattr(function, "decorator_list", [])
    return not any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in decorators)


def argument_for(
    function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, name: str, call: ast.Call, *, bound: bool
) -> ast.expr | bool | None:
    """The argument a call gives to a parameter; False where it is left out, None if unknown."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    positional = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
    if name in positional:
        position = positional.index(name) - (1 if bound else 0)
        if any(isinstance(a, ast.Starred) for a in call.args[: position + 1]):
            return None
        if 0 <= position < len(call.args):
            return call.args[position]
    if any(keyword.arg is None for keyword in call.keywords):
        return None
    return False


def default_of(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, name: str) -> ast.expr | None:
    """A parameter's default value, if it has one."""
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    for parameter, default in zip(reversed(positional), reversed(arguments.defaults), strict=False):
        if parameter.arg == name:
            return default
    for parameter, given in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if parameter.arg == name:
            return given
    return None
