"""What the names and attribute chains of a file mean, as far as imports and definitions tell."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TypeAlias

from codemods.analysis.index import Index, Symbol
from codemods.analysis.module import Module
from codemods.analysis.scopes import BindingKind
from codemods.analysis.shelf import Shelf

Meaning: TypeAlias = "tuple[ast.Name | ast.Attribute, Symbol]"


class Meanings:
    """Finds in each file, once, every name and chain that means something.

    A name can only do so where an import, a definition, or an assignment of another name binds it, or where
    nothing does and a star import may; a chain starts at such a name. Most names of a file are neither. What
    a file defines that is not read yet is left out: nothing of FSDP is there.
    """

    def __init__(self, index: Index, shelf: Shelf) -> None:
        self._index = index
        self._shelf = shelf
        self._found: dict[Module, list[Meaning]] = {}

    def of(self, module: Module) -> list[Meaning]:
        """Names and chains that are read, in the order of the text."""
        if module not in self._found:
            found = [one for word in _words(module) for one in self._under(module, word)]
            found.sort(key=lambda one: (one[0].end_lineno or 0, one[0].end_col_offset or 0))
            self._found[module] = found
        return self._found[module]

    def calls(self, module: Module) -> Iterator[tuple[ast.Call, Symbol]]:
        """Calls of what means something."""
        for node, symbol in self.of(module):
            parent = module.parent(node)
            if isinstance(parent, ast.Call) and parent.func is node:
                yield parent, symbol

    def _under(self, module: Module, word: str) -> Iterator[Meaning]:
        for name in module.named(word):
            node: ast.AST | None = name if isinstance(name, ast.Name) else None
            if isinstance(name, ast.Name) and self._index.is_elsewhere(module, name, self._shelf):
                continue
            while isinstance(node, ast.Name | ast.Attribute):
                symbol = self._index.resolve(module, node)
                if symbol is None:
                    break
                if isinstance(node.ctx, ast.Load):
                    yield node, symbol
                parent = module.parent(node)
                node = parent if isinstance(parent, ast.Attribute) else None


_MEANT = frozenset({BindingKind.IMPORT, BindingKind.DEFINITION})


def _words(module: Module) -> list[str]:
    scopes = module.scopes()
    found = {
        name
        for scope in scopes
        for name, bindings in scope.bindings.items()
        if any(b.kind in _MEANT or isinstance(b.value, ast.Name | ast.Attribute) for b in bindings)
    }
    if any(scope.star_imports for scope in scopes):
        bound = {name for scope in scopes for name in scope.bindings}
        found |= {node.id for node in module.nodes(ast.Name) if isinstance(node, ast.Name)} - bound
    return sorted(found)
