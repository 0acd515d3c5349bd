"""`hasattr` before an attribute is read. Pure."""

from __future__ import annotations

import ast

from codemods.analysis.module import Module


def is_read_where_met(module: Module, question: ast.Call) -> bool:
    """Whether `if hasattr(x, "name"):` reads `x.name` in its branch: what is to say of both stands there."""
    branch = module.parent(question)
    match question:
        case ast.Call(func=ast.Name(id="hasattr"), args=[owner, ast.Constant(value=str() as name)]):
            asked = f"{ast.unparse(owner)}.{name}"
        case _:
            return False
    if not isinstance(branch, ast.If):
        return False
    reads = (n for statement in branch.body for n in ast.walk(statement) if isinstance(n, ast.Attribute))
    return any(ast.unparse(n) == asked for n in reads)
