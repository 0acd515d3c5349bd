"""Where parameters of a sharded model go on to: into optimizers, through whatever is written around them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.analysis.module import Module
from codemods.analysis.scopes import targets_of
from codemods.analysis.spread import Spread
from codemods.analysis.spread_marks import OPTIMIZER, PARAMETERS
from codemods.analysis.stores import FILLS

_GIVE_PARAMETERS = ("param", "group")
"""In the names of functions whose results are followed."""


def follow_parameters(spread: Spread, module: Module, node: ast.expr) -> None:
    """Parameters go into optimizers, through anything written around them and through variables."""
    child: ast.AST = node
    for parent in module.ancestors(node):
        is_argument = isinstance(parent, ast.Call) and parent.func is not child
        if isinstance(parent, ast.Call) and is_argument and spread.links.builds_optimizer(module, parent):
            spread.add(module, parent, OPTIMIZER)
        if isinstance(parent, ast.Return | ast.Yield | ast.YieldFrom):
            function = module.function(parent)
            if function is not None and any(word in function.name for word in _GIVE_PARAMETERS):
                spread.put_result(module, function, PARAMETERS)
        for name in _filled(parent, child):
            _put(spread, module, name)
        for target in (one for whole in _bound_by(parent) for one in targets_of(whole)):
            if isinstance(target, ast.Name):
                _put(spread, module, target)
        if isinstance(parent, ast.stmt):
            return
        child = parent


def _filled(node: ast.AST, child: ast.AST) -> Iterator[ast.Name]:
    """The names of containers that a call or an assignment puts one of its parts into."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name() as name, attr=method)) if method in FILLS:
            if child is not node.func:
                yield name
        case ast.Assign(value=value, targets=targets) if value is child:
            for target in targets:
                container: ast.expr = target
                while isinstance(container, ast.Subscript):
                    container = container.value
                if isinstance(container, ast.Name) and container is not target:
                    yield container


def _put(spread: Spread, module: Module, name: ast.Name) -> None:
    found = module.scope_of(name).lookup(name.id)
    if found is not None:
        spread.put_variable(module, found[0], name.id, PARAMETERS)


def _bound_by(node: ast.AST) -> list[ast.expr]:
    """The targets that a statement, or a part of one, binds."""
    match node:
        case ast.Assign():
            return node.targets
        case ast.AnnAssign() | ast.AugAssign() | ast.NamedExpr() | ast.For() | ast.AsyncFor():
            return [node.target]
        case ast.comprehension():
            return [node.target]
        case ast.withitem(optional_vars=ast.expr() as target):
            return [target]
    return []
