"""What a wrap statement shards, and where its result goes."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from codemods.analysis.holding import Instance, WrapCall
from codemods.analysis.module import Module
from codemods.model import Code, Hole
from codemods.project import Project


@dataclass(frozen=True, slots=True)
class Target:
    """What is sharded and where the result goes.

    Attributes:
        model: the expression to shard, short enough to repeat.
        first: a statement that names the model, if it had no name.
        lead: what stands before the last `fully_shard` call: nothing, `y = `, `return `.
    """

    model: Code
    first: Code | None
    lead: Code


def target_of(site: WrapCall, statement: ast.stmt) -> Target | None:
    """None where the call is part of a larger expression."""
    module, wrapped = site.module, site.wrapped
    assert wrapped is not None
    match statement:
        case ast.Assign() if statement.value is site.node and len(statement.targets) == 1:
            name: ast.expr | None = statement.targets[0]
        case ast.AnnAssign() if statement.value is site.node and isinstance(statement.target, ast.Name):
            return None
        case ast.Return() if statement.value is site.node:
            name = None
        case ast.Expr() if statement.value is site.node:
            name = wrapped
        case _:
            return None
    if isinstance(name, ast.Tuple | ast.List):
        return None
    model: Code = (Hole(module.span(wrapped)),)
    if not _is_short(wrapped):
        if name is not None and not isinstance(name, ast.Name | ast.Attribute):
            return None
        own = (Hole(module.span(name)),) if name is not None else ("model",)
        if name is None and module.scope_of(site.node).lookup("model") is not None:
            return None
        plain: Code = (module.code(name),) if name is not None else ("model",)
        return Target(plain, (*own, " = ", *model), ("return ",) if name is None else ())
    plain = (module.code(wrapped),)
    if name is None:
        return Target(plain, None, ("return ",))
    if ast.unparse(name) == ast.unparse(wrapped):
        return Target(plain, None, ())
    return Target(plain, None, (module.code(name), " = "))


def _is_short(node: ast.expr) -> bool:
    while isinstance(node, ast.Attribute):
        node = node.value
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Name | ast.Constant):
        return _is_short(node.value)
    return isinstance(node, ast.Name)


def is_nested(project: Project, site: WrapCall) -> bool:
    """Whether the wrapped module is a part of a model that is itself wrapped.

    `m.layers[i] = FSDP(m.layers[i])`, or `m.layers[i] = FSDP(layer)`, beside `m = FSDP(m)` of the same
    function and not in another branch; `self.layers[i] = FSDP(self.layers[i])` in a class whose objects are
    wrapped.
    """
    module = site.module
    statement = module.statement(site.node)
    names = [site.wrapped, *(statement.targets if isinstance(statement, ast.Assign) else [])]
    around = {
        ast.unparse(other.wrapped)
        for other in project.wraps
        if other is not site
        and other.module is module
        and other.wrapped is not None
        and module.scope_of(other.node) is module.scope_of(site.node)
        and not _are_alternatives(module, site.node, other.node)
    }
    for node in names:
        while isinstance(node, ast.Attribute | ast.Subscript):
            node = node.value
            if ast.unparse(node) in around:
                return True
        if isinstance(node, ast.Name) and node.id == "self" and _is_wrapped_itself(project, site):
            return True
    return False


def _are_alternatives(module: Module, one: ast.AST, other: ast.AST) -> bool:
    """Whether two places are in different branches of one `if`."""
    there = [other, *module.ancestors(other)]
    child = one
    for parent in module.ancestors(one):
        if isinstance(parent, ast.If) and parent in there:
            inner = there[there.index(parent) - 1]
            return any(child in block and inner not in block for block in (parent.body, parent.orelse))
        child = parent
    return False


def _is_wrapped_itself(project: Project, site: WrapCall) -> bool:
    """Whether an object of the class that a wrap stands in is wrapped somewhere."""
    owner = site.module.class_of(site.node)
    if owner is None:
        return False
    for other in project.wraps:
        held = project.links.held(other.module, other.wrapped) if other.wrapped is not None else ()
        if other is not site and any(isinstance(h, Instance) and h.node is owner for h in held):
            return True
    return False
