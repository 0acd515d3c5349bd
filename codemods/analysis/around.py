"""Modules of which parts are sharded and which are not sharded themselves: `pair.student = FSDP(student)`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from codemods.analysis.holding import (
    Defined,
    Held,
    Holding,
    Instance,
    Maybe,
    Modules,
    No,
    Record,
    Sharded,
    WrapCall,
)
from codemods.analysis.module import Module

if TYPE_CHECKING:
    from codemods.analysis.link import Links

_DEEPEST = 3
_WHEN_MADE = frozenset({"__init__", "__post_init__", "setup", "configure_model", "configure_sharded_model"})


@dataclass(frozen=True, slots=True)
class _Kept:
    """A wrap that an attribute keeps, and the statement that puts it there."""

    site: WrapCall
    home: Module
    statement: ast.Assign


@dataclass(slots=True)
class Around:
    """Answers which wraps are within what an expression holds."""

    links: Links
    _classes: dict[tuple[Instance, int], frozenset[_Kept]] = field(default_factory=dict)
    _is_any: bool | None = None

    def holding(self, module: Module, node: ast.expr) -> Holding:
        """The wraps of parts, for a module that is not sharded itself.

        Not where objects that are known to be something else come by too, before parts are wrapped, or in
        programs that do not wrap them.
        """
        if not self.links.wraps or not (self.links.may_be_sharded(node) or self._may_be_any()):
            return No()
        held = self.links.held(module, node)
        around: set[Held] = {one for one in held if isinstance(one, Modules)}
        sites = {*self._sites(self.links.at(module, node, (None,)))} if around else set()
        for one in held:
            kept = self._of_class(one, _DEEPEST) if isinstance(one, Instance) else ()
            if found := {k.site for k in kept if self._can_be_kept(k, module, node)}:
                sites |= found
                around.add(one)
        if not sites or any(isinstance(one, Instance | Defined | Record) for one in held - around):
            return No()
        return Maybe(frozenset(sites)) if held - around else Sharded(frozenset(sites))

    def _may_be_any(self) -> bool:
        """Whether any object can keep a sharded model in an attribute."""
        if self._is_any is None:
            self._is_any = any(
                self.links.may_be_sharded(statement.value)
                for module in {site.module for site in self.links.wraps.values()} | set(self.links.naming)
                for statement in module.nodes(ast.Assign)
                if isinstance(statement, ast.Assign) and any(_attribute(t) for t in statement.targets)
            )
        return self._is_any

    def _of_class(self, instance: Instance, depth: int) -> frozenset[_Kept]:
        """The wraps in the attributes of an object that is a module and makes no state dict of its own."""
        key = instance, depth
        if key not in self._classes:
            self._classes[key] = frozenset()  # a module that holds one of its own class
            if depth and self._is_module(instance):
                self._classes[key] = frozenset(self._of_attributes(instance, depth))
        return self._classes[key]

    def _of_attributes(self, instance: Instance, depth: int) -> Iterator[_Kept]:
        for owner, home in self.links.classes.family(instance):
            for statement in home.within(owner, ast.Assign):
                targets = [(t, a) for t in statement.targets if (a := _attribute(t)) is not None]
                for target, attribute in targets:
                    held = self.links.held(home, statement.value)
                    if isinstance(target, ast.Subscript) and not self._is_container(home, attribute):
                        continue
                    if any(isinstance(one, Modules) for one in held):
                        held |= self.links.at(home, statement.value, (None,))
                    yield from (_Kept(site, home, statement) for site in self._sites(held))
                    for one in held:
                        if isinstance(one, Instance):
                            yield from self._of_class(one, depth - 1)

    def _is_container(self, home: Module, attribute: ast.expr) -> bool:
        return any(isinstance(one, Modules) for one in self.links.held(home, attribute))

    def _is_module(self, instance: Instance) -> bool:
        outside = self.links.classes.outside_bases(instance.node, instance.module)
        is_module = any(name.endswith(("Module", "Model")) for name in outside)
        return is_module and not self.links.classes.methods(instance, "state_dict")

    def _can_be_kept(self, kept: _Kept, module: Module, node: ast.expr) -> bool:
        """Whether the method that wraps a part can have run at a place."""
        method = kept.home.function(kept.statement)
        if not isinstance(method, ast.FunctionDef) or method.name in _WHEN_MADE:
            is_here = kept.home is module and method is module.function(node)
            return not is_here or self._can_be_behind(module, kept.statement, module, node)
        calls = self.links.calls_of(kept.home, method)
        return not calls or any(self._can_be_behind(home, call, module, node) for home, call in calls)

    def _can_be_behind(self, home: Module, call: ast.AST, module: Module, node: ast.expr) -> bool:
        """Whether a place can be reached behind a call or statement."""
        if home is not module:
            return home.path in self.links.shelf.together(module.path)
        if home.function(call) is not module.function(node):
            return True
        loops = [p for p in module.ancestors(node) if isinstance(p, ast.For | ast.While)]
        is_in_loop = any(loop in home.ancestors(call) for loop in loops)
        return is_in_loop or home.span(call).start < module.span(node).start

    @staticmethod
    def _sites(held: frozenset[object]) -> frozenset[WrapCall]:
        return frozenset(one for one in held if isinstance(one, WrapCall))


def _attribute(target: ast.expr) -> ast.Attribute | None:
    """`self.name` of `self.name = ...` and `self.name[key] = ...`."""
    inner = target.value if isinstance(target, ast.Subscript) else target
    match inner:
        case ast.Attribute(value=ast.Name(id="self")):
            return inner
    return None
