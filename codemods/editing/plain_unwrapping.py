"""`x.module if isinstance(x, FSDP) else x`: of a model that has no wrapper around it, `x`."""

from __future__ import annotations

import ast

from codemods.analysis.module import Module
from codemods.editing.code import delete, replace, starts_line
from codemods.model import Edit

_NAMES = ("module", "_fsdp_wrapped_module")


def plain_unwrapping(module: Module, asked: ast.expr) -> Edit | None:
    """The edit that leaves the model where a question for FSDP1's class only takes the wrapper off.

    Args:
        asked: the name of FSDP1's class in `isinstance(x, FSDP)`.
    """
    question = module.parent(asked)
    if not isinstance(question, ast.Call) or ast.unparse(question.func) != "isinstance":
        return None
    if len(question.args) != 2 or question.args[1] is not asked:
        return None
    subject = question.args[0]
    if not isinstance(subject, ast.Name | ast.Attribute):
        return None
    test: ast.AST = question
    parent = module.parent(test)
    is_negative = isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.Not)
    if is_negative and parent is not None:
        test, parent = parent, module.parent(parent)
    match parent:
        case ast.IfExp() if parent.test is test:
            inner, other = (parent.orelse, parent.body) if is_negative else (parent.body, parent.orelse)
            is_same = _is_inside_of(inner, subject) and ast.unparse(other) == ast.unparse(subject)
            if is_same and "#" not in module.code(parent):
                return replace(module, parent, (module.code(subject),))
        case ast.If(body=[ast.Assign(targets=[target]) as only], orelse=[]) if not is_negative:
            is_same = ast.unparse(target) == ast.unparse(subject) and _is_inside_of(only.value, subject)
            if is_same and _can_go(module, parent):
                return delete(module, parent)
    return None


def _is_inside_of(node: ast.expr, subject: ast.expr) -> bool:
    is_attribute = isinstance(node, ast.Attribute) and node.attr in _NAMES
    return is_attribute and ast.unparse(node.value) == ast.unparse(subject)  # type: ignore[attr-defined]


def _can_go(module: Module, statement: ast.If) -> bool:
    """Whether an `if` is no `elif`, and holds no comment."""
    span = module.span(statement)
    text = module.text[span.start : span.end]
    return text.startswith("if") and "#" not in text and starts_line(module, statement)
