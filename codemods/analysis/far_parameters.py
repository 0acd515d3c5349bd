"""Whose parameters are in a list or dict that was kept before: in an attribute, by a function, by a caller.

`ParameterLists.iterated` looks at one function. Here what is found is in any file, and so told with its own.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from codemods.analysis.arguments import argument_for
from codemods.analysis.flow import reaching
from codemods.analysis.module import Module, is_own, last_name
from codemods.analysis.parameter_lists import KEEPING, OwnerAt, parameters_of
from codemods.analysis.scopes import Binding, BindingKind, Scope
from codemods.analysis.stores import ItemStore

if TYPE_CHECKING:
    from codemods.analysis.link import Links

_SAME = frozenset({"data", "grad"})
_MADE = frozenset({"detach", "clone", "to", "cpu", "cuda", "float", "half", "bfloat16", "contiguous"})
_SHAPED = frozenset({"flatten", "view", "reshape", "ravel", "view_as", "requires_grad_"})
"""Methods that give a sharded tensor again."""
_MOST = 200


class FarParameters:
    """One question and what was looked at for it."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._seen: set[tuple[ast.AST, bool]] = set()

    def within(self, module: Module, node: ast.expr) -> Iterator[OwnerAt]:
        """`m` where the elements of a container are parameters of m, or tensors made of one each."""
        if self._is_known(node, is_element=False):
            return
        match node:
            case ast.Call() if (owner := parameters_of(node)) is not None:
                yield module, owner
            case ast.Call(func=ast.Attribute(value=inner, attr="values" | "items" | "copy")):
                yield from self.within(module, inner)
            case ast.Call(func=ast.Name(id=name), args=[*_, last]) if name in KEEPING:
                yield from self.within(module, last)
            case ast.Call():
                for home, function in self._links.functions.meant(module, node.func):
                    if not isinstance(function, ast.Lambda):
                        for value in home.results(function)[0]:
                            yield from self.within(home, value)
            case ast.ListComp() | ast.GeneratorExp() | ast.SetComp():
                yield from self.element(module, node.elt)
            case ast.DictComp():
                yield from self.element(module, node.value)
            case ast.List() | ast.Tuple() | ast.Set():
                for item in node.elts:
                    inside = self.within if isinstance(item, ast.Starred) else self.element
                    yield from inside(module, item.value if isinstance(item, ast.Starred) else item)
            case ast.BinOp(left=one, right=other) | ast.IfExp(body=one, orelse=other):
                yield from self.within(module, one)
                yield from self.within(module, other)
            case ast.Name() | ast.Attribute():
                for home, value in self._bound(module, node):
                    yield from self.within(home, value)
                for put in self._put(module, node):
                    follow = self.within if put.is_spread else self.element
                    yield from follow(put.module, put.value)

    def element(self, module: Module, node: ast.expr) -> Iterator[OwnerAt]:
        """`m` where a tensor is a parameter of m, its gradient, or made of one of these."""
        if self._is_known(node, is_element=True):
            return
        match node:
            case ast.Attribute(value=inner, attr=name) if name in _SAME:
                yield from self.element(module, inner)
            case ast.Call(func=ast.Attribute(value=inner, attr=name)) if name in _MADE | _SHAPED:
                yield from self.element(module, inner)
            case ast.Subscript(value=inner) | ast.Call(func=ast.Attribute(value=inner, attr="get")):
                yield from self.within(module, inner)
            case ast.Name():
                for source in self._looped(module, node):
                    yield from self.within(module, source)
                for home, value in self._bound(module, node):
                    yield from self.element(home, value)

    def _is_known(self, node: ast.AST, *, is_element: bool) -> bool:
        known = (node, is_element) in self._seen or len(self._seen) > _MOST
        self._seen.add((node, is_element))
        return known

    def _looped(self, module: Module, name: ast.Name) -> Iterator[ast.expr]:
        """What a name goes through in a loop; of `zip(a, b)` the one that gives it."""
        for binding in live(module, name):
            if binding.kind is not BindingKind.LOOP or binding.value is None:
                continue
            match binding.value:
                case ast.Call(func=ast.Name(id="zip"), args=sources) if binding.unpack:
                    yield from sources[binding.unpack[0] : binding.unpack[0] + 1]
                case ast.Call(func=ast.Name(id="enumerate"), args=[source, *_]):
                    if binding.unpack[:1] != (0,):
                        yield source
                case source:
                    yield source

    def _bound(self, module: Module, node: ast.Name | ast.Attribute) -> Iterator[tuple[Module, ast.expr]]:
        """What a name, or an attribute of `self` in its class, is assigned or given by a caller."""
        if isinstance(node, ast.Attribute):
            owner = module.class_of(node)
            for store in self._links.stores.here(module, node.attr) if is_own(node) else ():
                if is_own(store.target) and module.class_of(store.target) is owner:
                    yield from self._unpacked(module, store.value, store.unpack)
            return
        for binding in live(module, node):
            if binding.kind is BindingKind.PARAMETER:
                yield from self._given(module, node)
            elif binding.kind is BindingKind.ASSIGN and binding.value is not None:
                yield from self._unpacked(module, binding.value, binding.unpack)

    def _unpacked(
        self, module: Module, value: ast.expr, unpack: tuple[int, ...]
    ) -> Iterator[tuple[Module, ast.expr]]:
        """A part of what is assigned to several names, through a function that returns a tuple."""
        if not unpack:
            yield module, value
        elif isinstance(value, ast.Tuple | ast.List) and unpack[0] < len(value.elts):
            yield from self._unpacked(module, value.elts[unpack[0]], unpack[1:])
        elif isinstance(value, ast.Call):
            for home, function in self._links.functions.meant(module, value.func):
                for result in home.results(function)[0] if not isinstance(function, ast.Lambda) else ():
                    if isinstance(result, ast.Tuple):
                        yield from self._unpacked(home, result, unpack)

    def _given(self, module: Module, name: ast.Name) -> Iterator[tuple[Module, ast.expr]]:
        function = module.function(name)
        for call in self._links.functions.calls(module, function) if function is not None else ():
            given = argument_for(function, name.id, call.node, bound=call.is_bound) if function else None
            if isinstance(given, ast.expr):
                yield call.module, given

    def _put(self, module: Module, node: ast.Name | ast.Attribute) -> Iterator[ItemStore]:
        """What is put into a container: `kept.append(p)`, `kept += ps`, `self.shadow[name] = p.clone()`."""
        owner = module.class_of(node)
        for item in self._links.stores.items_here(module, last_name(node)):
            container = item.container
            if isinstance(node, ast.Name):
                is_it = isinstance(container, ast.Name) and _home(module, container) is _home(module, node)
            else:
                is_it = is_own(container) and is_own(node) and module.class_of(container) is owner
            if is_it:
                yield item


def live(module: Module, name: ast.Name) -> list[Binding]:
    """What a name can have been bound by where it stands."""
    seen = module.scope_of(name).lookup(name.id)
    return list(reaching(module, *seen, name)) if seen is not None else []


def _home(module: Module, name: ast.Name) -> Scope | None:
    """The scope that a name is of: that of a closure's may be around it."""
    seen = module.scope_of(name).lookup(name.id)
    return seen[0] if seen is not None else None
