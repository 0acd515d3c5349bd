"""`CustomPolicy` of FSDP1: functions that say yes or no are conditions, others give units settings. Pure.

Source: `torch.distributed.fsdp.wrap.CustomPolicy`, which takes nothing but a bool or a dict as an answer.
"""

from __future__ import annotations

import ast

from codemods.analysis.module import Module
from codemods.analysis.values import CallValue
from codemods.editing.code import code, finding, replace
from codemods.model import Finding, Safety
from codemods.project import Project
from codemods.shard_call import local_assignment

POLICIES_DISPLAY = ast.List | ast.Tuple | ast.Set
LAMBDA_POLICY = "torch.distributed.fsdp.wrap.lambda_auto_wrap_policy"
CUSTOM_POLICY = "torch.distributed.fsdp.wrap.CustomPolicy"
_CHANGES = frozenset({"append", "add", "pop", "remove", "update", "discard", "extend", "setdefault"})


def as_condition(module: Module, call: ast.AST, function: ast.expr, fm: str) -> Finding:
    """`CustomPolicy(f)` as a policy of the helper module."""
    new = code(module, "{functools.partial}({helper.lambda_auto_wrap_policy}, lambda_fn={f})", f=function)
    return finding(
        module,
        call,
        fm,
        "`CustomPolicy` of a yes-or-no function becomes `lambda_auto_wrap_policy`",
        safety=Safety.SAFE,
        edits=[replace(module, call, new)],
    )


def says_yes_or_no(project: Project, module: Module, function: ast.expr) -> bool:
    """Whether a function, a method, a callable object or a `partial` of one answers True or False."""
    functions = functions_of(project, module, function)
    return bool(functions) and all(_returns_boolean(home, node) for home, node in functions)


def functions_of(project: Project, module: Module, function: ast.expr) -> list[tuple[Module, ast.AST]]:
    """What runs where a function, a method, a callable object or a `partial` of one is called."""
    if isinstance(function, ast.Lambda):
        return [(module, function)]
    if isinstance(function, ast.Call) and function.args:
        symbol = project.resolve(module, function.func)
        if symbol is not None and symbol.name == "functools.partial":
            return functions_of(project, module, function.args[0])
    value = project.evaluate(module, function)
    if isinstance(value, CallValue) and value.function.name == "functools.partial" and value.arguments:
        return functions_of(project, value.origin.module, value.arguments[0])
    return list(project.links.functions.meant(module, function))


def _returns_boolean(module: Module, function: ast.AST) -> bool:
    if isinstance(function, ast.Lambda):
        return is_boolean(function.body)
    if not isinstance(function, ast.FunctionDef) or remembers(function):
        return False
    if isinstance(function.returns, ast.Name) and function.returns.id == "bool":
        return True  # FSDP1 took nothing but a bool or a dict
    returned, _ = module.results(function)
    return bool(returned) and all(is_boolean(r) for r in returned)


def remembers(function: ast.FunctionDef) -> bool:
    """Whether an answer can depend on what was asked before: modules are asked about in another order now."""
    return any(
        isinstance(node, ast.Global | ast.Nonlocal)
        or (isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store))
        or (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGES
        )
        or (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "next")
        for node in ast.walk(function)
    )


def is_boolean(node: ast.expr) -> bool:
    """Whether an expression is True or False by its form."""
    match node:
        case ast.Constant():
            return isinstance(node.value, bool)
        case ast.Compare():
            return True
        case ast.UnaryOp():
            return isinstance(node.op, ast.Not)
        case ast.BoolOp():
            return all(is_boolean(value) for value in node.values)
        case ast.IfExp():
            return is_boolean(node.body) and is_boolean(node.orelse)
        case ast.Call(func=ast.Name(id=name)):
            return name in ("isinstance", "issubclass", "any", "all", "bool", "hasattr", "callable")
    return False


def dropped_policies(project: Project, module: Module, policies: ast.expr | None) -> list[ast.expr]:
    """Those of a list of policies that make units of trained parameters, where others are left."""
    if "units" not in project.options.modernize or not isinstance(policies, POLICIES_DISPLAY):
        return []
    going = [policy for policy in policies.elts if _asks_what_is_trained(project, module, policy)]
    return going if len(going) < len(policies.elts) else []


def _asks_what_is_trained(project: Project, module: Module, policy: ast.expr) -> bool:
    value = project.evaluate(module, policy)
    if not isinstance(value, CallValue) or value.function.name != "functools.partial" or not value.arguments:
        return False
    home, function = value.origin.module, value.keywords.get("lambda_fn")
    symbol = project.resolve(home, value.arguments[0])
    if symbol is None or symbol.name != LAMBDA_POLICY or function is None:
        return False
    return any(
        isinstance(part, ast.Attribute) and part.attr == "requires_grad"
        for _, condition in functions_of(project, home, function)
        for part in ast.walk(condition)
    )


def serves_only(module: Module, policy: ast.expr) -> list[ast.stmt]:
    """Statements of a function that only made a policy: its assignment, and the function that it asks."""
    assignment = local_assignment(module, policy)
    if assignment is None:
        return []
    asked = {node.id for node in ast.walk(assignment) if isinstance(node, ast.Name)}
    functions = [
        node
        for node in module.block(assignment)
        if isinstance(node, ast.FunctionDef)
        and not node.decorator_list
        and node.name in asked
        and sum(isinstance(n, ast.Name) and n.id == node.name for n in module.nodes(ast.Name)) == 1
    ]
    return [assignment, *functions]
