"""Whether evaluating an expression does nothing but give a value: what only it used can then go with it."""

from __future__ import annotations

import ast

from codemods.analysis.module import Module
from codemods.project import Project
from codemods.torch_names import is_fsdp_namespace

_PURE_CALLS = frozenset(
    {
        "torch.device",
        "hasattr",
        "any",
        "all",
        "max",
        "min",
        "transformers.trainer_pt_utils.get_module_class_from_name",
    }
) | frozenset(
    {
        "functools.partial",
        "getattr",
        "len",
        "set",
        "dict",
        "list",
        "tuple",
        "int",
        "float",
        "bool",
        "str",
        "isinstance",
    }
)
_PURE_METHODS = frozenset(
    {"get", "lower", "upper", "keys", "values", "items", "named_children", "children", "__getattribute__"}
)
_LOGGERS = frozenset({"logger", "log", "logging", "_logger", "LOGGER", "LOG"})
_LOGGED = frozenset({"debug", "info", "warning", "warn", "error"})
_DEEPEST = 4
"""Calls of functions within functions that are looked into."""


def does_more(node: ast.AST) -> bool:
    """Whether an expression binds a name, waits or yields, apart from what the calls in it do."""
    return any(isinstance(p, ast.NamedExpr | ast.Await | ast.Yield | ast.YieldFrom) for p in ast.walk(node))


def is_pure(project: Project, module: Module, value: ast.AST) -> bool:
    """Whether evaluating something does nothing but give a value."""
    if does_more(value):
        return False
    calls = (node for node in ast.walk(value) if isinstance(node, ast.Call))
    return all(_is_pure_call(project, module, call, _DEEPEST) for call in calls)


def _is_pure_call(project: Project, module: Module, call: ast.Call, depth: int) -> bool:
    symbol = project.resolve(module, call.func)
    if symbol is None:
        if isinstance(call.func, ast.Attribute):
            return call.func.attr in _PURE_METHODS
        return isinstance(call.func, ast.Name) and call.func.id in _PURE_CALLS
    if symbol.module is None:
        return symbol.name in _PURE_CALLS or (
            is_fsdp_namespace(symbol.name) and not symbol.name.endswith(("FullyShardedDataParallel", "wrap"))
        )
    if isinstance(symbol.node, ast.FunctionDef) and depth:
        return _is_pure_function(project, symbol.module, symbol.node, depth - 1)
    return False


def _is_pure_function(project: Project, module: Module, function: ast.FunctionDef, depth: int) -> bool:
    """Whether a function only works out what it returns."""
    if not all(ast.unparse(d) in ("staticmethod", "classmethod") for d in function.decorator_list):
        return False
    for node in ast.walk(function):
        match node:
            case ast.Global() | ast.Nonlocal() | ast.Yield() | ast.YieldFrom() | ast.Await() | ast.Delete():
                return False
            case ast.Assign() | ast.AugAssign() | ast.AnnAssign():
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                if any(not isinstance(n, ast.Name | ast.Tuple) for n in targets):
                    return False
            case ast.Call() if not _is_pure_call(project, module, node, depth) and not _fills_own(
                function, node
            ):
                return False
    return True


def _fills_own(function: ast.FunctionDef, call: ast.Call) -> bool:
    """`policies.append(x)` on a list that the function made itself; an exception that it raises; what it says
    of its value in a log."""
    func = call.func
    if isinstance(func, ast.Name):
        return func.id.endswith(("Error", "Exception"))
    if not isinstance(func, ast.Attribute):
        return False
    if isinstance(func.value, ast.Name) and func.value.id in _LOGGERS:
        return func.attr in _LOGGED
    if func.attr not in ("append", "add", "extend", "update"):
        return False
    return isinstance(func.value, ast.Name) and any(
        isinstance(s, ast.Assign)
        and isinstance(s.value, ast.List | ast.Dict | ast.Set | ast.Call)
        and any(isinstance(t, ast.Name) and t.id == func.value.id for t in s.targets)
        for s in ast.walk(function)
    )
