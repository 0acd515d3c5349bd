"""Which argument a call gives to which parameter."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from codemods.analysis.holding import Path
from codemods.analysis.index import Index
from codemods.analysis.module import Module
from codemods.analysis.scopes import FunctionNode


def is_bound_call(index: Index, module: Module, function: ast.AST, home: Module, call: ast.Call) -> bool:
    """Whether the first parameter is filled by the object the method is called on, or by its class.

    Args:
        module: that of the function.
        home: that of the call.
    """
    if not isinstance(module.parent(function), ast.ClassDef) or is_static(function):
        return False
    decorators = {d.id for d in getattr(function, "decorator_list", []) if isinstance(d, ast.Name)}
    if "classmethod" in decorators or not isinstance(call.func, ast.Attribute):
        return True
    symbol = index.resolve(home, call.func.value)
    return symbol is None or not isinstance(symbol.node, ast.ClassDef)


def is_static(function: ast.AST) -> bool:
    """Whether a method is given no object."""
    decorators = getattr(function, "decorator_list", [])
    return any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in decorators)


def argument_for(function: FunctionNode, name: str, call: ast.Call, *, bound: bool) -> ast.expr | bool | None:
    """The argument a call gives to a parameter; False where it is left out, None if unknown."""
    given = given_to(_positional(function, bound=bound), name, call)
    if not given:
        return False
    argument, inner = given[0]
    return None if inner else argument


def arguments_for(
    function: FunctionNode, parameter: ast.arg, call: ast.Call, path: Path, *, bound: bool
) -> list[tuple[ast.expr, Path]]:
    """The expressions, and where in them, that a call gives to what is at a path of a parameter.

    Returns:
        Nothing where the parameter is left out.
    """
    positional = _positional(function, bound=bound)
    if function.args.vararg is parameter:
        return _extra_positional(call, len(positional), path)
    if function.args.kwarg is parameter:
        return _extra_keywords(call, {*positional, *(a.arg for a in function.args.kwonlyargs)}, path)
    return [(argument, (*inner, *path)) for argument, inner in given_to(positional, parameter.arg, call)]


def given_to(positional: Sequence[str], name: str, call: ast.Call) -> list[tuple[ast.expr, Path]]:
    """What a call gives to a name, by keyword, position, or out of `*` and `**`.

    Args:
        positional: the names that positional arguments go to.
    """
    for keyword in call.keywords:
        if keyword.arg == name:
            return [(keyword.value, ())]
    position = positional.index(name) if name in positional else -1
    for i, argument in enumerate(call.args[: position + 1]):
        if isinstance(argument, ast.Starred):
            return [(argument.value, (position - i,))]
        if i == position:
            return [(argument, ())]
    return [(k.value, (name,)) for k in call.keywords if k.arg is None]


def _positional(function: FunctionNode, *, bound: bool) -> list[str]:
    return [a.arg for a in (*function.args.posonlyargs, *function.args.args)][bound:]


def default_of(function: FunctionNode, name: str) -> ast.expr | None:
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


def _extra_positional(call: ast.Call, first: int, path: Path) -> list[tuple[ast.expr, Path]]:
    if not path:
        return []
    found: list[tuple[ast.expr, Path]] = []
    for i, argument in enumerate(call.args):
        if isinstance(argument, ast.Starred):
            found.append((argument.value, (None, *path[1:])))
        elif i >= first and path[0] in (None, i - first):
            found.append((argument, path[1:]))
    return found


def _extra_keywords(call: ast.Call, named: set[str], path: Path) -> list[tuple[ast.expr, Path]]:
    if not path:
        return []
    found: list[tuple[ast.expr, Path]] = []
    for keyword in call.keywords:
        if keyword.arg is None:
            found.append((keyword.value, path))
        elif keyword.arg not in named and path[0] in (None, keyword.arg):
            found.append((keyword.value, path[1:]))
    return found
