"""The last check of a rewritten file: it is concrete syntax, and no name in it lost its definition.

The rules edit text, so the result is looked at with other eyes than theirs: LibCST must give it back to the
last character (it has no lone carriage returns, nor very long chains), and the compiler's own symbol table
(`symtable`) must find no name that nothing defines. LibCST takes ten times as long as Python, so it is
imported here only, and reads the statements that are new.
"""

from __future__ import annotations

import ast
import builtins
import re
import symtable
from collections import Counter

from codemods.editing.new_statements import new_statements

_STAR_IMPORT = re.compile(r"^\s*from\s+\S+\s+import\s*\*", re.MULTILINE)
_KNOWN = {*dir(builtins), "__builtins__", "__file__", "__path__", "__annotations__"}
"""Names that every module has, with or without an assignment."""


def check_concrete(before: str, after: str, tree: ast.Module | None) -> None:
    """Let a second parser read what is new in the result. It is no judge of a file that it could not read.

    Args:
        tree: of `after`, as Python parses it; None where it does not.

    Raises:
        SyntaxError: LibCST gave `before` back to the last character, and does not give `after` back.
    """
    if tree is not None and _is_given_back(new_statements(before, after, tree)):
        return
    if not _is_given_back(after) and _is_given_back(before):
        raise SyntaxError("LibCST reads the file as it was, and not as it would be")


def _is_given_back(text: str) -> bool:
    import libcst

    try:
        return libcst.parse_module(text).code == text
    except (libcst.ParserSyntaxError, RecursionError):  # it recurses once for each link of a chain
        return False


def names_left_undefined(before: str, after: str) -> list[str]:
    """Names that `after` reads and nothing defines, where `before` had no such name.

    A file with a star import is given the benefit of the doubt: any name may come from there.
    """
    if _STAR_IMPORT.search(after):
        return []
    found = _undefined(after)
    return sorted(found - _undefined(before) - _defined_by_themselves(before)) if found else []


def _defined_by_themselves(text: str) -> set[str]:
    """Names whose every assignment reads them, as in `model = wrap(model)`: they come from elsewhere."""
    stored: Counter[str] = Counter()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            stored[node.id] += 1
        elif isinstance(node, ast.Assign):
            read = {one.id for one in ast.walk(node.value) if isinstance(one, ast.Name)}
            stored.subtract(t.id for t in node.targets if isinstance(t, ast.Name) and t.id in read)
    return {name for name, number in stored.items() if number == 0}


def _undefined(text: str) -> set[str]:
    read: set[str] = set()
    defined = set(_KNOWN)
    top = symtable.symtable(text, "<rewritten>", "exec")
    tables: list[symtable.SymbolTable] = [top]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        for symbol in table.get_symbols():
            if table is not top and not symbol.is_global():
                continue
            if symbol.is_referenced():
                read.add(symbol.get_name())
            if symbol.is_assigned() or symbol.is_imported() or symbol.is_annotated():
                defined.add(symbol.get_name())
    return read - defined
