"""Questions for FSDP1's class with a question for FSDP2's beside them: the two branches of a dual stack."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from codemods.analysis.class_questions import classes_of
from codemods.analysis.module import Module
from codemods.project import Project
from codemods.torch_names import FSDP, FSDP_MODULE

_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef


def is_asked_beside(project: Project, module: Module, question: ast.AST, subject: str | None = None) -> bool:
    """Whether the `if` chain, or the function, around a question asks for FSDP2's class too.

    Args:
        subject: the text of what must be asked about there; anything if None, and then only in a short
            function.
    """
    if any(_asks_for_fsdp2(project, module, place, subject) for place in _surroundings(module, question)):
        return True
    if subject is None:
        return False
    wider = _statements_around(module, question)
    if any(_asks_for_fsdp2(project, module, place, subject, alone=True) for place in wider):
        return True
    return _has_counterpart(project, module, question)


def _statements_around(module: Module, question: ast.AST) -> list[ast.AST]:
    """The function around a question, or the module's own statements."""
    function = module.function(question)
    if function is not None:
        return [function]
    return [s for s in module.tree.body if not isinstance(s, _FUNCTIONS | ast.ClassDef)]


def _has_counterpart(project: Project, module: Module, question: ast.AST) -> bool:
    """Whether a question is all that a function answers, and FSDP2's all that another one beside it does:
    `is_fsdp1(m)` and `is_fsdp2(m)`."""
    function = module.function(question)
    if function is None or not _only_answers(function):
        return False
    around = module.parent(function)
    others = around.body if isinstance(around, ast.Module | ast.ClassDef) else []
    return any(
        isinstance(other, _FUNCTIONS)
        and other is not function
        and _only_answers(other)
        and _asks_for_fsdp2(project, module, other, None, alone=True)
        for other in others
    )


def _only_answers(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    *before, last = function.body
    is_doc = all(isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant) for s in before)
    return is_doc and isinstance(last, ast.Return)


def _asks_for_fsdp2(
    project: Project, module: Module, place: ast.AST, subject: str | None, *, alone: bool = False
) -> bool:
    """Whether FSDP2's class is asked for.

    Args:
        alone: and not FSDP1's in the same question.
    """
    for node in ast.walk(place):
        match node:
            case ast.Call(func=ast.Name(id="isinstance"), args=[asked, classes]):
                if subject is not None and ast.unparse(asked) != subject:
                    continue
                both = list(classes_of(classes))
                if alone and any(is_fsdp1_class(project, module, one) for one in both):
                    continue
                if any(is_fsdp2_class(project, module, one) for one in both):
                    return True
    return False


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
