"""Brings a helper module that a person may have edited up to what is needed: definitions that stand as they
were written are replaced, missing ones take their place in the order, what a person changed stays."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass

from codemods.editing.import_groups import import_order


@dataclass(frozen=True, slots=True)
class _Definition:
    """A statement of a module that binds names, with decorators and what documents it.

    Attributes:
        first, last: its lines, counted from 0; `last` is the one after it.
        form: what it says, however it is formatted.
    """

    name: str
    first: int
    last: int
    text: str
    form: tuple[str, ...]


def with_additions(text: str, written: str, whole: str) -> tuple[str, list[str]]:
    """A helper module with everything that another has and that it lacks.

    Args:
        text: the module as it stands.
        written: a module with the same parts as they were written.
        whole: a module with every part that is needed.

    Returns:
        The module, and the definitions that would have to change although a person has edited them. They
        are as they were.
    """
    there = {d.name: d for d in _definitions(text)}
    before = {d.name: d for d in _definitions(written)}
    edited: list[str] = []
    rows = text.rstrip("\n").split("\n")
    changes: list[tuple[int, int, list[str]]] = []
    following = len(rows)
    for wanted in reversed(list(_definitions(whole))):
        known, old = there.get(wanted.name), before.get(wanted.name)
        if known is None:
            is_last = following == len(rows)
            blank = ["", ""]
            lines = wanted.text.split("\n")
            changes.append((following, following, [*blank, *lines] if is_last else [*lines, *blank]))
            continue
        following = _with_comments(rows, known.first)
        if old is not None and old.form == wanted.form:
            continue
        if old is None or known.form != old.form:
            edited.append(wanted.name)
            continue
        changes.append((known.first, known.last, wanted.text.split("\n")))
    for first, last, lines in sorted(changes, key=lambda change: -change[0]):
        rows[first:last] = lines
    return _with_imports("\n".join(rows) + "\n", whole), sorted(edited)


def _with_comments(rows: list[str], first: int) -> int:
    """Where the comments begin that stand right above a line."""
    while first and rows[first - 1].startswith("#"):
        first -= 1
    return first


def _definitions(text: str) -> Iterator[_Definition]:
    tree, lines = ast.parse(text), text.split("\n")
    for number, node in enumerate(tree.body):
        names = list(_names(node))
        if not names or isinstance(node, ast.Import | ast.ImportFrom):
            continue
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
        last = node.end_lineno or node.lineno
        following = tree.body[number + 1] if number + 1 < len(tree.body) else None
        forms = [ast.dump(node)]
        if (
            isinstance(node, ast.Assign)
            and isinstance(following, ast.Expr)
            and isinstance(following.value, ast.Constant)
        ):
            last = following.end_lineno or last  # the docstring of a type alias
            forms.append(ast.dump(following))
        part = "\n".join(lines[first - 1 : last])
        yield _Definition(names[0], first - 1, last, part, (*forms, *_comments(part)))


def _comments(text: str) -> Iterator[str]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


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


def _with_imports(text: str, whole: str) -> str:
    """A module with the imports of another that it lacks."""
    there = ast.parse(text)
    known = {name for node in there.body for name in _names(node)}
    imports = list(_missing_imports(ast.parse(whole), known))
    if not imports:
        return text
    rows = text.split("\n")
    at = max(
        (n.end_lineno or n.lineno for n in there.body if isinstance(n, ast.Import | ast.ImportFrom)),
        default=0,
    )
    if not at and ast.get_docstring(there) is not None:
        at = there.body[0].end_lineno or 0
    rows[at:at] = imports
    return "\n".join(rows)


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
