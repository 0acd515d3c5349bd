"""What the elements of tuples, lists and dicts hold: unpacked, looped over, looked up by a key."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

from codemods.analysis.arguments import returns_of
from codemods.analysis.attribute_items import items_held
from codemods.analysis.flow import reaching
from codemods.analysis.holding import OTHER, Held, HeldSet
from codemods.analysis.module import Module

if TYPE_CHECKING:
    from codemods.analysis.link import Links


@dataclass(slots=True)
class Containers:
    """The part of `Links` that is about elements."""

    links: Links

    def unpacked(self, module: Module, node: ast.expr, path: tuple[int, ...]) -> HeldSet:
        """What one element of a (nested) tuple value can hold."""
        if not path:
            return self.links.held(module, node)
        if isinstance(node, ast.Tuple | ast.List):
            return (
                self.unpacked(module, node.elts[path[0]], path[1:])
                if path[0] < len(node.elts)
                else frozenset()
            )
        if isinstance(node, ast.IfExp):
            return self.unpacked(module, node.body, path) | self.unpacked(module, node.orelse, path)
        if isinstance(node, ast.Call):
            function = self.links.function(module, node.func)
            if function is not None and node not in self.links.active:
                self.links.active.add(node)
                try:
                    home, definition = function
                    parts = [self.unpacked(home, r, path) for r in returns_of(home, definition)]
                finally:
                    self.links.active.discard(node)
                return frozenset().union(*parts)
        if isinstance(node, ast.Name) and (found := module.scope_of(node).lookup(node.id)):
            scope, bindings = found
            live = reaching(module, scope, bindings, node)
            parts = [self.unpacked(module, b.value, (*b.unpack, *path)) for b in live if b.value is not None]
            if parts and node not in self.links.active:
                return frozenset().union(*parts)
        return frozenset({OTHER})

    def element(self, module: Module, node: ast.expr) -> HeldSet:
        """What the elements of a list, tuple or dict can hold."""
        match node:
            case ast.Tuple() | ast.List() | ast.Set():
                return frozenset().union(*(self.links.held(module, e) for e in node.elts))
            case ast.Dict():
                return frozenset().union(*(self.links.held(module, v) for v in node.values))
            case ast.Call() if isinstance(node.func, ast.Attribute) and node.func.attr in ("values", "items"):
                return self.element(module, node.func.value)
            case ast.Attribute():
                return items_held(self.links, module, node, None) or frozenset({OTHER})
            case ast.Name() if node not in self.links.active:
                found = module.scope_of(node).lookup(node.id)
                self.links.active.add(node)
                try:
                    values = reaching(module, *found, node) if found else []
                    parts = [
                        self.element(module, b.value) for b in values if b.value is not None and not b.unpack
                    ]
                finally:
                    self.links.active.discard(node)
                return frozenset().union(*parts)
        return frozenset({OTHER})

    def subscript(self, module: Module, node: ast.Subscript) -> HeldSet:
        """What `container[key]` can hold."""
        container: ast.expr = node.value
        if isinstance(container, ast.Name) and (found := module.scope_of(container).lookup(container.id)):
            for binding in reaching(module, *found, container):
                if isinstance(binding.value, ast.Dict) and isinstance(node.slice, ast.Constant):
                    for key, value in zip(binding.value.keys, binding.value.values, strict=True):
                        if isinstance(key, ast.Constant) and key.value == node.slice.value:
                            return self.links.held(module, value)
        stores = self._subscript_stores(module, node)
        if not stores and isinstance(container, ast.Attribute):
            stores = items_held(self.links, module, container, node.slice)
        return stores or self.element(module, container)

    def _subscript_stores(self, module: Module, node: ast.Subscript) -> HeldSet:
        """`models["policy"] = FSDP(...)` seen from `models["policy"]` of the same scope."""
        text, held = ast.unparse(node), set[Held]()
        scope = module.scope_of(node)
        for other in module.nodes(ast.Subscript):
            assert isinstance(other, ast.Subscript)
            if (
                isinstance(other.ctx, ast.Store)
                and module.scope_of(other) is scope
                and ast.unparse(other) == text
            ):
                statement = module.parent(other)
                if isinstance(statement, ast.Assign):
                    held |= self.links.held(module, statement.value)
        return frozenset(held)
