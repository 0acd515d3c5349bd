"""The calls of a definition that name it, under whatever name, found when they are asked for."""

from __future__ import annotations

import ast
import re
from collections.abc import Container, Iterable
from typing import TypeAlias

from codemods.analysis.index import Index
from codemods.analysis.module import Module, last_name
from codemods.analysis.scopes import BindingKind
from codemods.analysis.shelf import CHAIN, Before, Shelf

_ASSIGNED = rb"=\s*\(?(?:\w+\s*\.\s*)*"
_BASES = rb"\bclass\s+\w+\s*\([^:]*"
Definition: TypeAlias = "ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef"
CallAt: TypeAlias = "tuple[Module, ast.Call]"


class Callers:
    """Definition -> calls of it; `functools.partial(f, ...)` and thread-like `target=f` left out."""

    def __init__(self, index: Index, shelf: Shelf) -> None:
        self._index = index
        self._shelf = shelf
        self._calls: dict[ast.AST, list[CallAt]] = {}
        self._names: dict[ast.AST, tuple[str, ...]] = {}
        self._renamed: dict[Module, dict[str, list[str]]] = {}

    def of(self, module: Module, node: ast.AST) -> list[CallAt]:
        """Every call of a function or class that is defined in a module."""
        found = self._calls.get(node)
        if found is None:
            found = []
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names = self.names(module, node)
                for home in self._homes(module, node, names):
                    found += [(home, call) for call in self._in(home, names, node)]
            self._calls[node] = found
        return found

    def naming_as_base(self, module: Module, node: ast.ClassDef) -> list[Module]:
        """The modules with a class that may name a class among its bases."""
        if self._is_local(module, node):
            return [module]
        users, found = self._shelf.users(module.path), {module.path}
        for word in self.names(module, node):
            found |= users.among(self._shelf.where(word, before=_BASES))
        return self._shelf.load(sorted(found))

    def _in(self, home: Module, names: Iterable[str], node: ast.AST) -> Iterable[ast.Call]:
        for used in home.named(*names):
            call = home.parent(used)
            if isinstance(call, ast.Call) and call.func is used:
                symbol = self._index.resolve(home, used)
                if symbol is not None and symbol.node is node:
                    yield call

    def names(self, module: Module, node: Definition) -> tuple[str, ...]:
        """The names that a definition has anywhere: its own, and those of imports and assignments."""
        found = self._names.get(node)
        if found is not None:
            return found
        names = [node.name]
        is_local = self._is_local(module, node)
        for word in names:  # grows
            again = [module] if is_local else self._shelf.load(self._renaming(module, word))
            for home in again:
                for name in self._renames(home).get(word, ()):
                    if name not in names and self._means(home, name, node):
                        names.append(name)
        self._names[node] = found = tuple(names)
        return found

    def _is_local(self, module: Module, node: ast.AST) -> bool:
        """Whether a definition stands in a function, so that no other module can name it."""
        return module.function(node) is not None

    def _renaming(self, module: Module, word: str) -> list[str]:
        """Files in which a name may be given another."""
        users = self._shelf.users(module.path)
        found = {
            *self._shelf.where(word, rb"[ \t]+as\b"),
            *self._shelf.where(word, rb"\s*\)?[ \t]*(?:[#;]|$)", before=_ASSIGNED),
        }
        return sorted(users.among(found))

    def _renames(self, module: Module) -> dict[str, list[str]]:
        """Name -> the names that a module gives to what it means."""
        if module not in self._renamed:
            found: dict[str, list[str]] = {}
            for scope in module.scopes():
                for name, bindings in scope.bindings.items():
                    for binding in bindings:
                        last = ""
                        if binding.kind is BindingKind.IMPORT:
                            last = binding.target.rpartition(".")[2]
                        elif binding.kind is BindingKind.ASSIGN and not binding.unpack:
                            last = last_name(binding.value)
                        if last and last != name and name not in found.setdefault(last, []):
                            found[last].append(name)
            self._renamed[module] = found
        return self._renamed[module]

    def _means(self, module: Module, name: str, node: ast.AST) -> bool:
        """Whether a name means a definition in one of a module's scopes."""
        symbols = (
            self._index.lookup(module, scope, name) for scope in module.scopes() if name in scope.bindings
        )
        return any(symbol is not None and symbol.node is node for symbol in symbols)

    def _homes(self, module: Module, node: Definition, names: tuple[str, ...]) -> list[Module]:
        """The modules in which the names may be called."""
        if self._is_local(module, node):
            return [module]
        users, owner = self._shelf.users(module.path), module.parent(node)
        named: Container[str] = users
        if isinstance(owner, ast.ClassDef):  # a method by its name: `Base.__init__(self)`
            named = users.among(p for word in self.names(module, owner) for p in self._shelf.with_word(word))
        found = {module.path}
        for word in names if named else ():
            for path in self._shelf.where(word, rb"\s*\)*\s*\(", Before.NO_DEFINITION):
                if path in named and path not in found and self._may_call(path, word):
                    found.add(path)
        return self._shelf.load(sorted(found))

    def _may_call(self, path: str, word: str) -> bool:
        """Whether a file calls a name as it stands, or as an attribute of something that it imports."""
        text = self._shelf.code_of(path)
        for match in re.finditer(rb"%s\s*\)*\s*\(" % re.escape(word.encode()), text):
            start = match.start()
            before = text[max(0, start - 200) : start]
            if not before.endswith(b"."):
                return True
            chain = CHAIN.search(before)
            if chain is not None and chain[1] in self._shelf.import_words(path):
                return True
        return False
