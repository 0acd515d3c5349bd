"""What code asks of one parameter: its shape, its values, how many elements it has."""

from __future__ import annotations

import ast
from collections.abc import Set
from typing import TYPE_CHECKING

from codemods.analysis.arguments import arguments_for, is_bound_call
from codemods.analysis.joined_parameters import root_of
from codemods.analysis.module import Module

if TYPE_CHECKING:
    from codemods.project import Project

SHAPES = {"ndim", "dim", "shape", "size"}
VALUES = {
    *("norm", "item", "mean", "sum", "max", "min", "std", "var", "any", "all", "prod", "amax", "amin"),
    *("numpy", "tolist", "copy_", "count_nonzero", "isnan", "isinf", "isfinite"),
}
FUNCTIONS = {
    *("norm", "vector_norm", "isnan", "isinf", "isfinite", "mean", "sum", "max", "min", "count_nonzero"),
    *("dot", "vdot", "inner", "tensordot"),
    *("all_reduce", "reduce", "broadcast", "all_gather", "all_gather_into_tensor", "reduce_scatter_tensor"),
}
_SAYING = {"print", "info", "debug", "warning", "write", "log", "pprint"}


def code_of(node: ast.AST, names: Set[str], computed: Set[str] = frozenset()) -> str | None:
    """Which finding a node of a loop's body calls for.

    Args:
        names: of parameters and gradients.
        computed: of tensors that are made of them.
    """
    tensors = names | computed
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in FUNCTIONS:
        return "FM514" if any(root_of(argument) in tensors for argument in node.args) else None
    if not isinstance(node, ast.Attribute):
        return None
    if node.attr == "data" and isinstance(node.ctx, ast.Store):
        return "FM514" if isinstance(node.value, ast.Name) and node.value.id in names else None
    if node.attr in ("numel", "nelement") and root_of(node.value) in names:
        return "FM515"
    if node.attr in SHAPES and isinstance(node.value, ast.Name) and node.value.id in names:
        return "FM509"
    if node.attr in VALUES and root_of(node.value) in tensors:
        return "FM514"
    return None


def is_shape_asked_by(project: Project, module: Module, call: ast.AST, names: Set[str]) -> bool:
    """Whether a call gives a parameter to a function of the project that goes by its shape:
    `is_muon_candidate(name, p)`."""
    if not isinstance(call, ast.Call):
        return False
    given = [*call.args, *(k.value for k in call.keywords)]
    if not any(isinstance(one, ast.Name) and one.id in names for one in given):
        return False
    for home, function in project.links.functions.meant(module, call.func):
        bound = is_bound_call(project.index, home, function, module, call)
        own = {
            parameter.arg
            for parameter in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
            for one, path in arguments_for(function, parameter, call, (), bound=bound)
            if not path and isinstance(one, ast.Name) and one.id in names
        }
        if any(code_of(n, own) == "FM509" and not is_no_rule(home, n) for n in ast.walk(function)):
            return True
    return False


def is_no_rule(module: Module, node: ast.AST) -> bool:
    """Whether nothing is decided by a shape: it becomes a part of a text, or is compared with another's."""
    for parent in module.ancestors(node):
        if isinstance(parent, ast.JoinedStr) or (isinstance(parent, ast.Call) and _says(parent)):
            return True
        if isinstance(parent, ast.Compare):
            return all(isinstance(one, ast.Attribute) for one in (parent.left, *parent.comparators))
        if isinstance(parent, ast.stmt):
            return False
    return False


def _says(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return name in _SAYING
