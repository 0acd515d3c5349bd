"""What is put into a dict variable after it was made: `d["k"] = v`, `d.update(k=v)`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.analysis.module import Module


def writes(module: Module, use: ast.Name) -> Iterator[tuple[str, str, ast.expr, ast.AST]]:
    """`d["k"] = v`, `d.update(...)` and other changes of the dict named by `use`, in its scope."""
    found = module.scope_of(use).lookup(use.id)
    scope = found[0] if found else None
    for node in module.named(use.id):
        if not isinstance(node, ast.Name):
            continue
        found = module.scope_of(node).lookup(node.id)
        if found is None or found[0] is not scope:
            continue
        parent = module.parent(node)
        if isinstance(parent, ast.Subscript) and parent.value is node and isinstance(parent.ctx, ast.Store):
            statement = module.statement(parent)
            key = parent.slice.value if isinstance(parent.slice, ast.Constant) else None
            if isinstance(statement, ast.Assign) and isinstance(key, str):
                yield "key", key, statement.value, parent
            else:
                yield "unknown", "", node, parent
        elif isinstance(parent, ast.Attribute) and parent.attr in ("update", "setdefault", "pop"):
            call = module.parent(parent)
            if isinstance(call, ast.Call) and parent.attr == "update":
                for keyword in call.keywords:
                    if keyword.arg is not None:
                        yield "key", keyword.arg, keyword.value, keyword
                    else:
                        yield "merge", "", keyword.value, keyword
                for argument in call.args:
                    yield "merge", "", argument, call
            elif parent.attr == "setdefault":
                yield "unknown", "", node, parent
