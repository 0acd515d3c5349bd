"""What variables hold: their bindings in force, those of other modules, parameters, what is put into them."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from codemods.analysis.flow import reaching
from codemods.analysis.holding import (
    DECLARED,
    NOTHING,
    OTHER,
    UNSEEN,
    Declared,
    Defined,
    Held,
    HeldSet,
    Instance,
    Other,
    Path,
    WrapCall,
    can_be,
)
from codemods.analysis.index import Symbol
from codemods.analysis.module import Module
from codemods.analysis.scopes import Binding, BindingKind, Scope
from codemods.analysis.stores import ItemStore

if TYPE_CHECKING:
    from codemods.analysis.link import Links

_FARTHEST = 8


@dataclass(slots=True)
class Variables:
    """The part of `Links` that is about names."""

    links: Links
    _live: dict[ast.Name, list[Binding]] = field(default_factory=dict)

    def name(self, module: Module, node: ast.Name, path: Path) -> HeldSet:
        """What a variable holds where it is read."""
        if node.id in ("self", "cls"):
            owner = module.class_of(node)
            if owner is not None:
                return NOTHING if path else frozenset({self._itself(node, owner, module)})
        found = module.scope_of(node).lookup(node.id)
        if found is None:
            return self._starred(module, node, path)
        scope, bindings = found
        if any(binding.kind is BindingKind.IMPORT for binding in bindings):
            symbol = self.links.index.resolve(module, node)
            if symbol is not None:
                return defined(symbol, path)
        live = self._live.get(node)
        if live is None:
            live = self._live[node] = reaching(module, scope, bindings, node)
        held: set[Held] = set() if live else {UNSEEN}
        for binding in live:
            held |= self.binding(module, binding, path)
        if isinstance(scope.node, ast.Module):
            held |= self._stored_from_outside(module, scope, node.id, path)
        if path:
            return self._with_items(module, scope, node.id, path, frozenset(held))
        return frozenset(held)

    def _itself(self, node: ast.Name, owner: ast.ClassDef, module: Module) -> Held:
        """`self` or `cls`."""
        if node.id == "cls":
            return Defined(owner, module)
        around = [p for p in module.ancestors(node) if isinstance(p, ast.FunctionDef | ast.AsyncFunctionDef)]
        method = next((f for f in around if module.parent(f) is owner), None)
        return self.links.classes.instance(owner, module, is_exact=False, within=method)

    def of_module(self, module: Module, name: str, path: Path) -> HeldSet:
        """What a variable of a module holds for other modules: any of its values."""
        held: set[Held] = set(self._stored_from_outside(module, module.scope, name, path))
        for binding in module.scope.bindings.get(name, []):
            held |= self.binding(module, binding, path)
        if path:
            return self._with_items(module, module.scope, name, path, frozenset(held))
        return frozenset(held)

    def _starred(self, module: Module, node: ast.Name, path: Path) -> HeldSet:
        """A name that only a star import can bind."""
        for star in module.scope.star_imports:
            holder = self.links.index.find(star, module.path)
            if holder is not None and holder is not module and node.id in holder.scope.bindings:
                return self.of_module(holder, node.id, path)
        return frozenset({UNSEEN})

    def binding(self, module: Module, binding: Binding, path: Path) -> HeldSet:
        """What one binding of a name gives it."""
        value, inner = binding.value, (*binding.unpack, *path)
        match binding.kind:
            case BindingKind.ASSIGN if value is not None:
                return self._assigned(module, binding, value, inner)
            case BindingKind.AUGMENT if value is not None:
                return self.links.at(module, value, inner) if path else NOTHING
            case BindingKind.CONTEXT if value is not None:
                return self.links.calls.entered(module, value, inner)
            case BindingKind.LOOP if value is not None:
                return self.links.at(module, value, (None, *inner))
            case BindingKind.PARAMETER:
                return self._parameter(module, binding, path)
            case BindingKind.IMPORT:
                return self._imported(module, binding, path)
            case BindingKind.DEFINITION if isinstance(
                binding.node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
            ):
                return NOTHING if path else frozenset({Defined(binding.node, module)})
            case BindingKind.OTHER if value is not None:  # `*rest`: a list of some of the elements
                rest = (*binding.unpack[:-1], None, *path[1:])
                return self.links.at(module, value, rest) if path else NOTHING
        return frozenset({UNSEEN})

    def _assigned(self, module: Module, binding: Binding, value: ast.expr, inner: Path) -> HeldSet:
        held = self.links.at(module, value, inner)
        statement = binding.node
        if not isinstance(statement, ast.AnnAssign) or inner:
            return held
        if self.links.evidence.annotated(module, statement.annotation):
            # What is known of the value says where it comes from, and other bindings still count.
            return frozenset(h for h in held if not isinstance(h, Other)) or frozenset({DECLARED})
        return held or frozenset(self.links.classes.annotated(module, statement.annotation))

    def _imported(self, module: Module, binding: Binding, path: Path) -> HeldSet:
        """What an import brings: a definition, or a variable of another module."""
        symbol = self.links.index.imported(module, binding.target)
        if symbol is not None:
            return defined(symbol, path)
        home = self.links.index.holder(module, binding.target)
        if home is None:
            return frozenset({UNSEEN})
        return self.of_module(home, binding.target.rpartition(".")[2], path)

    def _parameter(self, module: Module, binding: Binding, path: Path) -> HeldSet:
        parameter = binding.node
        assert isinstance(parameter, ast.arg)
        arguments = module.parent(parameter)
        function = module.parent(arguments) if arguments is not None else None
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            return frozenset({UNSEEN})
        held: set[Held] = set()
        told = parameter.annotation
        if not path and told is not None and self.links.evidence.annotated(module, told):
            held.add(DECLARED)
        held |= self.links.functions.given(module, function, parameter, path)
        if not any(isinstance(h, WrapCall | Instance | Declared) for h in held) and not path:
            held |= set(self.links.classes.annotated(module, parameter.annotation))
        return frozenset(held)

    def _with_items(self, module: Module, scope: Scope, name: str, path: Path, held: HeldSet) -> HeldSet:
        """What a container was made with, and what is put into it anywhere."""
        is_global = isinstance(scope.node, ast.Module)
        items = [
            item
            for item in self.links.stores.items_of_variable(module, name, is_global=is_global)
            if self._is_in(item.module, item.container, scope)
        ]
        put, is_replaced = put_into(self.links, items, path)
        held |= put
        if is_replaced:
            return frozenset(h for h in held if isinstance(h, WrapCall | Declared))
        return held

    def _is_in(self, module: Module, container: ast.Name | ast.Attribute, scope: Scope) -> bool:
        """Whether a name, or an attribute of a module, means a variable of a scope."""
        if isinstance(container, ast.Name):
            return self.variable(module, container) is scope
        symbol = self.links.index.resolve(module, container.value)
        return symbol is not None and symbol.node is scope.node

    def filled(self, module: Module, node: ast.Name, path: Path, held: HeldSet) -> HeldSet:
        """What a variable's container has at a path, given what its bindings hold there."""
        scope = self.variable(module, node)
        return self._with_items(module, scope, node.id, path, held) if scope is not None else held

    def variable(self, module: Module, node: ast.Name) -> Scope | None:
        """The scope, of whatever module, in which the variable that a name means is bound."""
        found = module.scope_of(node).lookup(node.id)
        name = node.id
        for _ in range(_FARTHEST):
            if found is None:
                return None
            scope, bindings = found
            imports = [b for b in bindings if b.kind is BindingKind.IMPORT]
            if not imports:
                return scope
            home = self.links.index.holder(module, imports[-1].target)
            if home is None:
                return scope
            name, module = imports[-1].target.rpartition(".")[2], home
            found = module.scope.lookup(name)
        return None

    def _stored_from_outside(self, module: Module, scope: Scope, name: str, path: Path) -> HeldSet:
        """`module.name = value` in another module."""
        held: set[Held] = set()
        for store in self.links.stores.attributes(name):
            if store.module is not module and isinstance(store.holder, ast.Name | ast.Attribute):
                symbol = self.links.index.resolve(store.module, store.holder)
                if symbol is not None and symbol.module is module and symbol.node is scope.node:
                    held |= self.links.at(store.module, store.value, (*store.unpack, *path))
        return frozenset(held)


def defined(symbol: Symbol, path: Path) -> HeldSet:
    """What a name that was found means as a value."""
    if path:
        return NOTHING
    node, module = symbol.node, symbol.module
    if module is not None and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return frozenset({Defined(node, module)})
    return frozenset({OTHER})


def put_into(links: Links, items: list[ItemStore], path: Path) -> tuple[HeldSet, bool]:
    """What is put into a container at a path.

    Returns:
        It, and whether it is in the place of all that was there before: `models[name] = wrap(models[name])`.
    """
    added: set[Held] = set()
    is_replaced = False
    for item in items:
        keys, rest = item.keys, path[len(item.keys) :]
        if len(keys) > len(path) or not all(map(can_be, keys, path)):
            continue
        if item.is_spread and rest:
            inner = rest if isinstance(rest[0], str) else (None, *rest[1:])
            added |= links.at(item.module, item.value, inner)
        elif not item.is_spread:
            put = links.at(item.module, item.value, rest)
            added |= put
            is_replaced |= _replaces(item, put)
    return frozenset(added), is_replaced


def _replaces(item: ItemStore, put: HeldSet) -> bool:
    if not any(isinstance(h, WrapCall) for h in put) or not isinstance(item.node, ast.Assign):
        return False
    return ast.unparse(item.node.targets[0]) in ast.unparse(item.value)
