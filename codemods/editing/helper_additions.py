"""Adds what is missing to a helper module that a person has edited: definitions at its end, imports after its
imports. What stands there stays."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.editing.import_groups import import_order


def with_additions(text: str, whole: str) -> str:
    """A module with the definitions of another that it lacks.

    Args:
        text: the module as it stands.
        whole: a module with every definition that is needed.
    """
    there, wanted = ast.parse(text), ast.parse(whole)
    known = set(_bound(there))
    lines = whole.split("\n")
    parts = []
    for number, node in enumerate(wanted.body):
        names = set(_names(node))
        if not names or names & known or isinstance(node, ast.Import | ast.ImportFrom):
            continue
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
        last = node.end_lineno or node.lineno
        following = wanted.body[number + 1] if number + 1 < len(wanted.body) else None
        if isinstance(node, ast.Assign) and isinstance(following, ast.Expr):
            last = following.end_lineno or last  # the docstring of a type alias
        parts.append("\n".join(lines[first - 1 : last]))
    imports = list(_missing_imports(wanted, known))
    rows = text.rstrip("\n").split("\n")
    at = max(
        (n.end_lineno or n.lineno for n in there.body if isinstance(n, ast.Import | ast.ImportFrom)),
        default=0,
    )
    if not at and ast.get_docstring(there) is not None:
        at = there.body[0].end_lineno or 0
    rows[at:at] = imports
    return "\n\n\n".join(["\n".join(rows), *parts]) + "\n"


def _bound(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        yield from _names(node)


def _names(node: ast.stmt) -> Iterator[str]:
    """The names that a statement of a module binds."""
    match node:
        case ast.FunctionDef() | ast.ClassDef():
            yield node.name
        case ast.Assign():
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))
        case ast.AnnAssign(target=ast.Name() as target):
            yield target.id
        case ast.Import() | ast.ImportFrom():
            yield from (alias.asname or alias.name.split(".")[0] for alias in node.names)


def _missing_imports(wanted: ast.Module, known: set[str]) -> Iterator[str]:
    for node in wanted.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            missing = [a for a in node.names if (a.asname or a.name.split(".")[0]) not in known]
            if not missing or (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
                continue
            missing.sort(key=lambda alias: import_order(alias.name))
            shown = ", ".join(f"{a.name} as {a.asname}" if a.asname else a.name for a in missing)
            yield (
                f"from {node.module} import {shown}"
                if isinstance(node, ast.ImportFrom)
                else f"import {shown}"
            )
