"""What attributes hold: every assignment to them in a class, its relatives and through its instances."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from codemods.analysis.arguments import given_to
from codemods.analysis.classes import ClassAt
from codemods.analysis.flow import reaching
from codemods.analysis.functions import is_property
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
    Modules,
    Other,
    Path,
    Record,
    Unseen,
    WrapCall,
)
from codemods.analysis.module import Module, is_own
from codemods.analysis.own_classes import made_by_self
from codemods.analysis.scopes import Binding, BindingKind
from codemods.analysis.spread_marks import INSIDE
from codemods.analysis.stores import AttributeStore
from codemods.analysis.variables import defined, put_into

if TYPE_CHECKING:
    from codemods.analysis.link import Links


@dataclass(frozen=True, slots=True)
class _Kin:
    """What objects have to do with classes; of all of them at once, which can be thousands.

    Attributes:
        family: the classes whose methods can run on one of them, `classes` the same without their modules.
        objects: those of the objects that are no classes themselves.
        own: the classes that they are of.
    """

    owners: tuple[Instance, ...]
    family: list[ClassAt]
    classes: frozenset[ast.ClassDef]
    objects: frozenset[ast.ClassDef]
    own: frozenset[ast.ClassDef]
    homes: list[Module]


@dataclass(slots=True)
class Attributes:
    """The part of `Links` that is about `x.name`."""

    links: Links
    _chains: dict[ast.expr, str] = field(default_factory=dict)
    _kin: dict[HeldSet, _Kin | None] = field(default_factory=dict)

    def attribute(self, module: Module, node: ast.Attribute, path: Path) -> HeldSet:
        """What an attribute holds where it is read."""
        local, not_yet = self._same_chain(module, node, path)
        if local is not None:
            return local
        base = self.links.index.resolve(module, node.value)
        if base is not None and base.module is None:
            return defined(base, path)
        if base is not None and base.module is not None and isinstance(base.node, ast.Module):
            symbol = self.links.index.resolve(module, node)
            if symbol is not None:
                return defined(symbol, path)
            return self.links.variables.of_module(base.module, node.attr, path)
        receivers = self.links.held(module, node.value)
        held = self._of_all(module, receivers, node.attr, path, not_yet)
        held |= self._part(module, receivers, node.value, node.attr, path)
        if not any(isinstance(h, Instance | Defined | Record) for h in receivers):
            held |= self._same_class_chain(module, node, path, not_yet)
        is_known = any(isinstance(h, Other) and not isinstance(h, Unseen) for h in receivers)
        return held or frozenset({OTHER if is_known else UNSEEN})

    def named(self, module: Module, holder: ast.expr, name: str, path: Path) -> HeldSet:
        """What `getattr(holder, name)` gives."""
        receivers = self.links.held(module, holder)
        held = self._of_all(module, receivers, name, path, frozenset())
        return held | self._part(module, receivers, holder, name, path)

    def _part(self, module: Module, receivers: HeldSet, holder: ast.expr, name: str, path: Path) -> HeldSet:
        """The module inside a wrapper, and what a `ModuleDict` has: `nets.first` is `nets["first"]`."""
        found = _inside(name, receivers) if name in INSIDE and not path else NOTHING
        if any(isinstance(h, Modules) for h in receivers):
            found |= self.links.at(module, holder, (name, *path))
        return found

    def _of_all(
        self, module: Module, receivers: HeldSet, name: str, path: Path, not_yet: frozenset[ast.AST]
    ) -> HeldSet:
        held: set[Held] = set()
        for receiver in receivers:
            if isinstance(receiver, Record):
                held |= self._of_record(receiver, name, path)
        kin = self._kin_among(receivers)
        if kin is not None:
            held |= self._of_kin(kin, name, path, not_yet)
        return frozenset(held)

    def _kin_among(self, receivers: HeldSet) -> _Kin | None:
        """The objects among some receivers, and its classes, whose attributes their objects have."""
        if receivers not in self._kin:
            objects = [one for one in receivers if isinstance(one, Instance)]
            owners = list(objects)
            for one in receivers:
                if isinstance(one, Defined) and isinstance(one.node, ast.ClassDef):
                    owners.append(self.links.classes.instance(one.node, one.module, is_exact=False))
            self._kin[receivers] = self._kin_of(owners, objects) if owners else None
        return self._kin[receivers]

    def _kin_of(self, owners: list[Instance], objects: list[Instance]) -> _Kin:
        known = self.links.classes
        owners = sorted(owners, key=lambda one: (one.module.path, one.node.lineno))
        family = list(dict.fromkeys(one for owner in owners for one in known.family(owner)))
        return _Kin(
            tuple(owners),
            family,
            frozenset(node for node, _ in family),
            frozenset().union(*map(known.family_nodes, objects)),
            frozenset(owner.node for owner in owners),
            list(dict.fromkeys(home for _, home in family)),
        )

    def _of_record(self, record: Record, name: str, path: Path) -> HeldSet:
        held: set[Held] = set()
        for keyword in record.node.keywords:
            if keyword.arg == name:
                held |= self.links.at(record.module, keyword.value, path)
            elif keyword.arg is None:
                held |= self.links.at(record.module, keyword.value, (name, *path))
        if name in record.fields and record.fields.index(name) < len(record.node.args):
            held |= self.links.at(record.module, record.node.args[record.fields.index(name)], path)
        for store in self.links.stores.attributes(name):
            if record in self.links.held(store.module, store.holder):
                held |= self.links.at(store.module, store.value, (*store.unpack, *path))
        return frozenset(held)

    def _of_kin(self, kin: _Kin, name: str, path: Path, not_yet: frozenset[ast.AST]) -> HeldSet:
        """What an attribute of an object can hold: every assignment in the methods of its classes and through
        its instances.

        Args:
            not_yet: assignments that come later in the function asked from.
        """
        held: set[Held] = set()
        is_wrapped = is_replaced = False
        for store in self.links.stores.attributes(name, kin.homes):
            if store.target not in not_yet and self._is_of(store.module, store.holder, kin):
                held |= self.links.at(store.module, store.value, (*store.unpack, *path))
                is_wrapped |= self._wraps_itself(store)
        held |= self._in_body(kin, name, path)
        if path:
            items = [
                item
                for item in self.links.stores.items_of_attribute(name, kin.homes)
                if isinstance(item.container, ast.Attribute)
                and self._is_of(item.module, item.container.value, kin)
            ]
            put, is_replaced = put_into(self.links, items, path)
            held |= put
        if (is_wrapped or is_replaced) and len(kin.owners) > 1:  # not in all of them, perhaps
            return NOTHING.union(
                *(self._of_kin(self._kin_of([one], []), name, path, not_yet) for one in kin.owners)
            )
        if is_replaced:
            held = {h for h in held if isinstance(h, WrapCall | Declared)}
        if is_wrapped:
            held = {h for h in held if not isinstance(h, Other | Instance)}
        return frozenset(held)

    def _is_of(self, module: Module, holder: ast.expr, kin: _Kin) -> bool:
        """Whether an attribute of `holder` is one of the objects'."""
        if isinstance(holder, ast.Name) and holder.id in ("self", "cls"):
            return module.class_of(holder) in kin.classes
        other = self._kin_among(self.links.held(module, holder))
        return other is not None and not (
            other.own.isdisjoint(kin.classes) and other.objects.isdisjoint(kin.own)
        )

    def _in_body(self, kin: _Kin, name: str, path: Path) -> HeldSet:
        """What the bodies of the classes say: values, fields, properties, methods."""
        held: set[Held] = set()
        for node, home in kin.family:
            for binding in home.table.scopes[node].bindings.get(name, []):
                match binding.node:
                    case ast.AnnAssign() as statement:
                        held |= self._field(home, node, statement, name, path)
                    case ast.Assign() if binding.value is not None:
                        held |= self.links.at(home, binding.value, (*binding.unpack, *path))
        methods = (one for owner in kin.owners for one in self.links.classes.methods(owner, name))
        for home, method in dict.fromkeys(methods):
            if is_property(method):
                held |= self.links.functions.returned(home, method, path)
            elif not path:
                held.add(Defined(method, home))
        return frozenset(held)

    def _field(
        self, home: Module, owner: ast.ClassDef, statement: ast.AnnAssign, name: str, path: Path
    ) -> HeldSet:
        """A dataclass field: what constructor calls and `dataclasses.replace` give it."""
        held: set[Held] = set()
        if not path and self.links.evidence.annotated(home, statement.annotation):
            held.add(DECLARED)
        if statement.value is not None:
            held |= self.links.at(home, statement.value, path)
        for node, where in [(owner, home), *self.links.classes.heirs(owner, home)]:
            fields = self.links.classes.fields(node, where)
            known = self.links.classes
            for module, call in (*self.links.callers.of(where, node), *made_by_self(known, node, where)):
                for value, inner in given_to(fields, name, call):
                    held |= self.links.at(module, value, (*inner, *path))
        for module, call, replaced in self.links.functions.replacements(name):
            if any(
                isinstance(h, Instance) and self.links.classes.is_a(h, owner)
                for h in self.links.held(module, call.args[0])
            ):
                held |= self.links.at(module, replaced, path)
        if not held and not path:
            held |= set(self.links.classes.annotated(home, statement.annotation))
        return frozenset(held)

    def _same_class_chain(
        self, module: Module, node: ast.Attribute, path: Path, not_yet: frozenset[ast.AST]
    ) -> HeldSet:
        """What `self.a.b` is assigned in the same class, its bases and heirs, where nothing is known of
        `self.a`."""
        owner, text = module.class_of(node), self._chain(node)
        if owner is None or not text.startswith("self."):
            return NOTHING
        family = dict(self.links.classes.family(Instance(owner, module, is_exact=False)))
        homes = dict.fromkeys(sorted(family.values(), key=lambda home: home.path))
        stores = self.links.stores
        held: set[Held] = set()
        for store in (s for home in homes for s in stores.here(home, node.attr)):
            if not isinstance(store.target, ast.Attribute) or store.target in not_yet:
                continue
            if self._chain(store.target) == text and store.module.class_of(store.target) in family:
                held |= self.links.at(store.module, store.value, (*store.unpack, *path))
        return frozenset(held)

    def _wraps_itself(self, store: AttributeStore) -> bool:
        """`self.model = FSDP(self.model)`, not in a branch: what was there before is gone."""
        value, target = store.value, store.target
        site = self.links.wraps.get(value) if isinstance(value, ast.Call) else None
        if site is None or site.wrapped is None or not isinstance(target, ast.Attribute):
            return False
        if ast.unparse(site.wrapped) != ast.unparse(target):
            return False
        module = store.module
        return module.parent(module.statement(target)) is module.function(target)

    def _same_chain(
        self, module: Module, node: ast.Attribute, path: Path
    ) -> tuple[HeldSet | None, frozenset[ast.AST]]:
        """What the same attribute chain was assigned earlier in the same function, as if it were a variable.

        Also the targets of the function that are assigned on no path to the place.
        """
        stores = self.links.stores.here(module, node.attr)
        if not stores:
            return None, frozenset()
        scope, text = module.scope_of(node), self._chain(node)
        targets: dict[Binding, ast.AST] = {}
        for store in stores:
            target = store.target
            if not isinstance(target, ast.Attribute) or module.scope_of(target) is not scope:
                continue
            if self._chain(target) == text:
                statement = module.statement(target)
                targets[Binding(text, BindingKind.ASSIGN, statement, store.value, store.unpack)] = target
        start = Binding(text, BindingKind.PARAMETER, node)
        live = reaching(module, scope, [start, *targets], node) if targets else []
        if not live or start in live or (path and not _is_of_new_object(module, node)):
            return None, frozenset(targets[b] for b in targets if b not in live)
        values = ((b.value, (*b.unpack, *path)) for b in live if b.value is not None)
        held = NOTHING.union(*(self.links.at(module, value, inner) for value, inner in values))
        if path:
            items = self.links.stores.items_here(module, node.attr)
            own = [item for item in items if self._chain(item.container) == text]
            own = [item for item in own if module.class_of(item.container) is module.class_of(node)]
            held |= put_into(self.links, own, path)[0]
        return held, frozenset()

    def _chain(self, node: ast.expr) -> str:
        if node not in self._chains:
            self._chains[node] = ast.unparse(node)
        return self._chains[node]


def _is_of_new_object(module: Module, node: ast.Attribute) -> bool:
    """Whether it is an attribute of an object that is being made: only its own methods have filled it."""
    return is_own(node) and getattr(module.function(node), "name", "") == "__init__"


def _inside(name: str, receivers: HeldSet) -> HeldSet:
    """The module inside a wrapper; what was compiled is any module."""
    kinds = (WrapCall, Declared, Instance) if name == "_orig_mod" else (WrapCall, Declared)
    return frozenset(h for h in receivers if isinstance(h, kinds))
