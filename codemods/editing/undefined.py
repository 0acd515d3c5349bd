"""The last check of a rewritten file: it is concrete syntax, and no name in it lost its definition.

The rules edit text, so the result is looked at with another parser than theirs: LibCST and its scopes
(`libcst.metadata.ScopeProvider`), imported here only, because only files that change are worth its time.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import libcst

_IDENTIFIER = re.compile(r"[^\W\d]\w*\Z")
_STAR_IMPORT = re.compile(r"^\s*from\s+\S+\s+import\s*\*", re.MULTILINE)
_MODULE_NAMES = {"__doc__", "__file__", "__loader__", "__name__", "__package__", "__path__", "__spec__"}


def names_left_undefined(before: str, after: str) -> list[str]:
    """Names that `after` reads and nothing defines, where `before` had no such name.

    A file with a star import is given the benefit of the doubt: any name may come from there.

    Raises:
        SyntaxError: LibCST cannot parse `after`, or does not give it back to the last character.
    """
    import libcst

    try:
        module = libcst.parse_module(after)
    except libcst.ParserSyntaxError as error:
        raise SyntaxError(f"LibCST cannot parse it: {error.message}") from error
    if module.code != after:
        raise SyntaxError("LibCST does not give it back unchanged")
    if _STAR_IMPORT.search(after):
        return []
    found = _undefined(module)
    # Scopes have gaps of their own (names that a `match` pattern binds, for one): those were there before.
    return sorted(found - _undefined(libcst.parse_module(before))) if found else []


def _undefined(module: libcst.Module) -> set[str]:
    from libcst.metadata import MetadataWrapper, ScopeProvider

    scopes = set(MetadataWrapper(module, unsafe_skip_copy=True).resolve(ScopeProvider).values())
    names: set[str] = set()
    for scope in scopes:
        if scope is None:
            continue
        for access in scope.accesses:
            name = _first_name(access.node)
            # Words in a string that might be an annotation are accesses to LibCST; only names count here.
            if name and not access.referents:
                names.add(name)
    return names - _MODULE_NAMES


def _first_name(node: libcst.CSTNode) -> str:
    """`a` of `a.b.c`; empty where it is no name."""
    import libcst

    while isinstance(node, libcst.Attribute):
        node = node.value
    return node.value if isinstance(node, libcst.Name) and _IDENTIFIER.match(node.value) else ""
