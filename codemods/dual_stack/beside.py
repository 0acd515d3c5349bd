"""Questions for FSDP1's class with a question for FSDP2's beside them: the two branches of a dual stack."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from codemods.analysis.module import Module
from codemods.dual_stack.marks import FSDP_MODULE
from codemods.project import Project
from codemods.torch_names import FSDP

_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef


def is_asked_beside(project: Project, module: Module, question: ast.AST, subject: str | None = None) -> bool:
    """Whether the `if` chain, or the short function, around a question asks for FSDP2's class too.

    Args:
        subject: the text of what must be asked about there; anything if None.
    """
    return any(_asks_for_fsdp2(project, module, place, subject) for place in _surroundings(module, question))


def _asks_for_fsdp2(project: Project, module: Module, place: ast.AST, subject: str | None) -> bool:
    for node in ast.walk(place):
        match node:
            case ast.Call(func=ast.Name(id="isinstance"), args=[asked, classes]):
                is_same = subject is None or ast.unparse(asked) == subject
                if is_same and any(is_fsdp2_class(project, module, one) for one in classes_of(classes)):
                    return True
    return False


def classes_of(node: ast.expr) -> Iterator[ast.expr]:
    """The classes of `isinstance`'s second argument: one, a tuple, or a union."""
    if isinstance(node, ast.Tuple):
        for element in node.elts:
            yield from classes_of(element)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        yield from classes_of(node.left)
        yield from classes_of(node.right)
    else:
        yield node


def without(module: Module, classes: ast.expr, gone: Sequence[ast.expr]) -> str:
    """The text of `isinstance`'s second argument without some of its classes, of which others stay."""
    rest = [module.code(one) for one in classes_of(classes) if one not in gone]
    if isinstance(classes, ast.BinOp):
        return " | ".join(rest)
    return rest[0] if len(rest) == 1 else f"({', '.join(rest)})"


def is_fsdp1_class(project: Project, module: Module, node: ast.expr) -> bool:
    """Whether an expression is FSDP1's class."""
    symbol = project.resolve(module, node)
    return symbol is not None and symbol.name == FSDP


def is_fsdp2_class(project: Project, module: Module, node: ast.expr) -> bool:
    """Whether an expression is the class that `fully_shard` gives to modules."""
    symbol = project.resolve(module, node)
    return symbol is not None and symbol.name in FSDP_MODULE


def _surroundings(module: Module, node: ast.AST) -> Iterator[ast.AST]:
    """The `if` chain or the condition around a question, and a short function that is all about it."""
    for parent in module.ancestors(node):
        if isinstance(parent, ast.BoolOp):
            yield parent
        if isinstance(parent, ast.If | ast.IfExp):
            yield from _tests_of_chain(module, parent)
        if isinstance(parent, _FUNCTIONS):
            is_short = all(isinstance(s, ast.If | ast.Return | ast.Expr | ast.Raise) for s in parent.body)
            if is_short:
                yield parent
            return


def _tests_of_chain(module: Module, node: ast.If | ast.IfExp) -> Iterator[ast.expr]:
    head = node
    while isinstance(parent := module.parent(head), ast.If | ast.IfExp) and _otherwise(parent) is head:
        head = parent
    current: ast.AST | None = head
    while isinstance(current, ast.If | ast.IfExp):
        yield current.test
        current = _otherwise(current)


def _otherwise(node: ast.If | ast.IfExp) -> ast.AST | None:
    if isinstance(node, ast.IfExp):
        return node.orelse
    return node.orelse[0] if len(node.orelse) == 1 else None
