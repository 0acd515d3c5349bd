"""What attributes hold: every assignment to them in a class, its relatives and through its instances."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from codemods.analysis.flow import reaching
from codemods.analysis.holding import DECLARED, OTHER, Held, HeldSet, Instance
from codemods.analysis.module import Module
from codemods.analysis.scopes import Binding, BindingKind

if TYPE_CHECKING:
    from codemods.analysis.link import Links


@dataclass(slots=True)
class Attributes:
    """The part of `Links` that is about `x.name`."""

    links: Links
    _by_name: dict[str, list[tuple[Module, ast.Attribute, ast.expr, tuple[int, ...]]]] | None = field(
        default=None
    )

    def attribute(self, module: Module, node: ast.Attribute) -> HeldSet:
        local, not_yet = self._same_chain(module, node)
        if local is not None:
            return local
        owners = [h for h in self.links.held(module, node.value) if isinstance(h, Instance)]
        held: set[Held] = set()
        for owner in owners:
            for definition, home in self.lineage(owner.node, owner.module):
                held |= self._attribute_of(definition, home, node.attr, not_yet)
        if not owners:
            held |= self._same_class_chain(module, node, not_yet)
        return frozenset(held) or frozenset({OTHER})

    def _same_class_chain(self, module: Module, node: ast.Attribute, not_yet: frozenset[ast.AST]) -> HeldSet:
        """What `self.a.b` is assigned in the same class, its bases and heirs, where nothing is known of
        `self.a`."""
        owner, text = module.class_of(node), ast.unparse(node)
        if owner is None or not text.startswith("self."):
            return frozenset()
        values = [
            self.links.containers.unpacked(home, value, unpack)
            for home, target, value, unpack in self._stores().get(node.attr, [])
            if ast.unparse(target) == text and target not in not_yet
            if self._are_related(module, owner, home, home.class_of(target))
        ]
        return frozenset().union(*values)

    def _are_related(
        self, module: Module, one: ast.ClassDef, home: Module, other: ast.ClassDef | None
    ) -> bool:
        """Whether one class is, or inherits from, the other."""
        if other is None:
            return False
        up = any(node is other for node, _ in self.lineage(one, module))
        return up or any(node is one for node, _ in self.lineage(other, home))

    def _attribute_of(
        self, owner: ast.ClassDef, home: Module, name: str, not_yet: frozenset[ast.AST]
    ) -> HeldSet:
        """What `self.<name>` can hold: every assignment in the class's methods and through its instances.

        `not_yet`: assignments that come later in the function asked from.
        """
        assigned: list[HeldSet] = []
        wrapped_in_place = False
        for module, target, value, unpack in self._stores().get(name, []):
            if target in not_yet:
                continue
            direct = isinstance(target.value, ast.Name) and target.value.id == "self"
            if direct and not (module is home and module.class_of(target) is owner):
                continue
            if not direct and not self._reaches(module, target.value, owner):
                continue
            assigned.append(self.links.containers.unpacked(module, value, unpack))
            wrapped_in_place |= self._wraps_itself(module, target, value)
        for statement in owner.body:
            match statement:
                case ast.AnnAssign(target=ast.Name(id=field_name)) if field_name == name:
                    assigned.append(self._field(home, owner, statement, name))
        held = frozenset().union(*assigned)
        return held - {OTHER} if wrapped_in_place else held

    def _field(self, home: Module, owner: ast.ClassDef, statement: ast.AnnAssign, name: str) -> HeldSet:
        """A dataclass field: what its constructor calls give it."""
        held: set[Held] = {DECLARED} if self.links.evidence.annotated(home, statement.annotation) else set()
        fields = [
            s.target.id for s in owner.body if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)
        ]
        for module, call in self.links.callers.get(owner, []):
            given = next((k.value for k in call.keywords if k.arg == name), None)
            position = fields.index(name)
            if given is None and position < len(call.args):
                given = call.args[position]
            if given is not None:
                held |= self.links.held(module, given)
        return frozenset(held)

    def _reaches(self, module: Module, holder: ast.expr, owner: ast.ClassDef) -> bool:
        if holder in self.links.active:
            return False
        held = self.links.held(module, holder)
        return any(isinstance(h, Instance) and self.is_a(h, owner) for h in held)

    def _wraps_itself(self, module: Module, target: ast.Attribute, value: ast.expr) -> bool:
        """`self.model = FSDP(self.model)`, not in a branch: what was there before is gone."""
        site = self.links.wraps.get(value) if isinstance(value, ast.Call) else None
        if site is None or site.wrapped is None or ast.unparse(site.wrapped) != ast.unparse(target):
            return False
        function = module.function(target)
        return module.parent(module.statement(target)) is function

    def _same_chain(self, module: Module, node: ast.Attribute) -> tuple[HeldSet | None, frozenset[ast.AST]]:
        """What the same attribute chain was assigned earlier in the same function, as if it were a variable.

        Also the targets of the function that are assigned on no path to the place.
        """
        scope, text = module.scope_of(node), ast.unparse(node)
        bindings = []
        targets: dict[Binding, ast.AST] = {}
        for home, target, value, unpack in self._stores().get(node.attr, []):
            if home is module and module.scope_of(target) is scope and ast.unparse(target) == text:
                bindings.append(Binding(text, BindingKind.ASSIGN, module.statement(target), value, unpack))
                targets[bindings[-1]] = target
        start = Binding(text, BindingKind.PARAMETER, node)
        live = reaching(module, scope, [start, *bindings], node) if bindings else []
        if not live or start in live:
            return None, frozenset(targets[b] for b in bindings if b not in live)
        held = frozenset().union(
            *(self.links.containers.unpacked(module, b.value, b.unpack) for b in live if b.value is not None)
        )
        return held, frozenset()

    def _stores(self) -> dict[str, list[tuple[Module, ast.Attribute, ast.expr, tuple[int, ...]]]]:
        """Every assignment to an attribute, by the attribute's name."""
        if self._by_name is None:
            self._by_name = {}
            for module in list(self.links.modules.values()):
                for kind in (ast.Assign, ast.AnnAssign):
                    for node in module.nodes(kind):
                        targets = node.targets if isinstance(node, ast.Assign) else [node.target]  # type: ignore[attr-defined]
                        value = node.value  # type: ignore[attr-defined]
                        if value is None:
                            continue
                        for target in targets:
                            for attribute, unpack in _attribute_targets(target):
                                stores = self._by_name.setdefault(attribute.attr, [])
                                stores.append((module, attribute, value, unpack))
        return self._by_name

    def is_a(self, instance: Instance, owner: ast.ClassDef) -> bool:
        return any(node is owner for node, _ in self.lineage(instance.node, instance.module))

    def lineage(self, node: ast.ClassDef, module: Module) -> list[tuple[ast.ClassDef, Module]]:
        """A class and its bases in the project."""
        found: list[tuple[ast.ClassDef, Module]] = []
        stack = [(node, module)]
        while stack:
            current, home = stack.pop()
            if any(current is seen for seen, _ in found):
                continue
            found.append((current, home))
            for base in current.bases:
                symbol = self.links.index.resolve(home, base)
                if symbol and symbol.module is not None and isinstance(symbol.node, ast.ClassDef):
                    stack.append((symbol.node, symbol.module))
        return found


def _attribute_targets(
    target: ast.expr, unpack: tuple[int, ...] = ()
) -> Iterable[tuple[ast.Attribute, tuple[int, ...]]]:
    if isinstance(target, ast.Attribute):
        yield target, unpack
    elif isinstance(target, ast.Tuple | ast.List):
        for position, element in enumerate(target.elts):
            yield from _attribute_targets(element, (*unpack, position))
