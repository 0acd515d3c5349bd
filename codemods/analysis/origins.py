"""Where an object comes from, and which of two places is reached first.

`Links` says what an expression holds; here it is followed to the places where the object was made, so that
two expressions can be found to mean the same object though one is sharded by then and the other is not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from codemods.analysis.arguments import arguments_for, is_bound_call
from codemods.analysis.conditions import are_apart
from codemods.analysis.flow import reaching
from codemods.analysis.frames import PASS_THROUGH
from codemods.analysis.holding import Instance
from codemods.analysis.link import Links
from codemods.analysis.module import Module
from codemods.analysis.scopes import Binding, BindingKind

_DEPTH = 40
_MOST = 2000
"""Places that are looked at for one answer."""
_PASSED = 4
"""Names that a parameter may have one after the other before it is given back."""
_At: TypeAlias = "tuple[Module, ast.AST, tuple[int, ...]]"
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(slots=True)
class Origins:
    """Answers where objects were made.

    Attributes:
        homes: the module of each place that an answer named.
    """

    links: Links
    homes: dict[ast.AST, Module] = field(default_factory=dict)
    _known: dict[ast.expr, frozenset[ast.AST]] = field(default_factory=dict)

    def of(self, module: Module, node: ast.expr) -> frozenset[ast.AST]:
        """The calls (or parameters of functions that nobody calls) that made what an expression holds.

        A wrap gives the module it is given, since `fully_shard` works in place.
        """
        known = self._known.get(node)
        if known is not None:
            return known
        made: set[ast.AST] = set()
        seen: set[tuple[ast.AST, tuple[int, ...]]] = set()
        waiting: list[_At] = [(module, node, ())]
        while waiting and len(seen) < _MOST:
            home, at, path = waiting.pop()
            if (at, path) in seen:
                continue
            seen.add((at, path))
            if isinstance(at, ast.expr):
                for before in self._before(home, at, path):
                    if before[1] is at and before[2] == path:
                        self.homes[at] = home
                        made.add(at)
                    waiting.append(before)
            else:  # a parameter that nothing is known of
                self.homes[at] = home
                made.add(at)
        found = self._known[node] = frozenset(made)
        return found

    def _before(self, module: Module, node: ast.expr, path: tuple[int, ...]) -> Iterator[_At]:
        """Where what is at a path of an expression comes from; itself where it is made there."""
        match node:
            case _ if path:
                yield from self._element(module, node, path)
            case ast.Name():
                found = module.scope_of(node).lookup(node.id)
                for binding in reaching(module, *found, node) if found is not None else ():
                    if binding.kind is BindingKind.PARAMETER:
                        yield from self._parameter(module, binding)
                    elif binding.kind is BindingKind.ASSIGN and binding.value is not None:
                        yield module, binding.value, binding.unpack
            case ast.Attribute():
                yield from self._attribute(module, node)
            case ast.Call():
                yield from self._call(module, node)
            case ast.IfExp():
                yield from ((module, node.body, ()), (module, node.orelse, ()))
            case ast.BoolOp():
                yield from ((module, value, ()) for value in node.values)
            case ast.NamedExpr():
                yield module, node.value, ()

    def _element(self, module: Module, value: ast.expr, path: tuple[int, ...]) -> Iterator[_At]:
        if isinstance(value, ast.Tuple | ast.List):
            is_there = -len(value.elts) <= path[0] < len(value.elts)
            if is_there and not any(isinstance(element, ast.Starred) for element in value.elts):
                yield module, value.elts[path[0]], path[1:]
            return
        function = self._function(module, value.func) if isinstance(value, ast.Call) else None
        if function is not None:
            home, definition = function
            yield from ((home, one, path) for one in home.results(definition)[0])

    def _parameter(self, module: Module, binding: Binding) -> Iterator[_At]:
        parameter = binding.node
        arguments = module.parent(parameter)
        function = module.parent(arguments) if arguments is not None else None
        if not isinstance(function, _Function) or not isinstance(parameter, ast.arg):
            return
        calls = self.links.functions.calls(module, function)
        if not calls:
            yield module, parameter, ()
        for call in calls:
            for given, path in arguments_for(function, parameter, call.node, (), bound=call.is_bound):
                if not path:
                    yield call.module, given, ()

    def _attribute(self, module: Module, node: ast.Attribute) -> Iterator[_At]:
        owners = [h for h in self.links.held(module, node.value) if isinstance(h, Instance)]
        classes = {c: m for o in owners for c, m in self.links.classes.lineage(o.node, o.module)}
        homes = dict.fromkeys(sorted(classes.values(), key=lambda home: home.path))
        for store in (s for home in homes for s in self.links.stores.here(home, node.attr)):
            is_own = isinstance(store.holder, ast.Name) and store.holder.id == "self"
            if is_own and store.module.class_of(store.holder) in classes:
                yield store.module, store.value, store.unpack

    def _call(self, module: Module, node: ast.Call) -> Iterator[_At]:
        site = self.links.wraps.get(node)
        if site is not None:
            if site.wrapped is not None:
                yield module, site.wrapped, ()
            return
        if isinstance(node.func, ast.Attribute) and node.func.attr in PASS_THROUGH:
            yield module, node.func.value, ()
            return
        function = self._function(module, node.func)
        if function is None:
            yield module, node, ()
            return
        home, definition = function
        for one in home.results(definition)[0]:
            bound = is_bound_call(self.links.index, home, definition, module, node)
            given: list[_At] = [
                (module, argument, ())
                for parameter in self._only_parameters(home, definition, one) or ()
                for argument, path in arguments_for(definition, parameter, node, (), bound=bound)
                if not path
            ]
            yield from given or [(home, one, ())]

    def _only_parameters(
        self, module: Module, function: _Function, node: ast.expr, depth: int = _PASSED
    ) -> list[ast.arg] | None:
        """The parameters of a function that an expression in it stands for, wrapped or not; None where it is
        anything else: two calls of `shard(net)` give two models."""
        match node:
            case ast.Call() if (site := self.links.wraps.get(node)) is not None:
                node = site.wrapped or node
            case ast.Call(func=ast.Attribute(value=inner, attr=name)) if name in PASS_THROUGH:
                node = inner
        found = module.scope_of(node).lookup(node.id) if isinstance(node, ast.Name) and depth else None
        bindings = reaching(module, *found, node) if found is not None else []
        parameters: list[ast.arg] = []
        for binding in bindings:
            if binding.kind is BindingKind.PARAMETER and module.function(binding.node) is function:
                parameters += [binding.node] if isinstance(binding.node, ast.arg) else []
            elif binding.kind is BindingKind.ASSIGN and binding.value is not None and not binding.unpack:
                before = self._only_parameters(module, function, binding.value, depth - 1)
                if before is None:
                    return None
                parameters += before
            else:
                return None
        return list(dict.fromkeys(parameters)) or None

    def _function(self, module: Module, callee: ast.expr) -> tuple[Module, _Function] | None:
        meant = self.links.functions.meant(module, callee)
        return next(((home, one) for home, one in meant if isinstance(one, _Function)), None)

    def is_earlier(self, one: tuple[Module, ast.AST], other: tuple[Module, ast.AST]) -> bool:
        """Whether a place is reached before another, as far as one function shows both.

        Each place is followed to the calls of its function, and theirs. A constructor comes before the other
        methods of its class; of the two branches of an `if` neither comes before the other.
        """
        first = list(self._reached_from(*one))
        second = {scope: statement for _, scope, statement in self._reached_from(*other)}
        for module, scope, here in first:
            there = second.get(scope, here)
            if here is not there:
                is_before = module.span(here).start < module.span(there).start
                return is_before and not are_apart(module, here, there)
        classes = [_method_of(module, node) for module, node in (one, other)]
        return (
            classes[0] is not None
            and classes[1] is not None
            and classes[0][0] is classes[1][0]
            and classes[0][1] == "__init__" != classes[1][1]
        )

    def _reached_from(self, module: Module, node: ast.AST) -> Iterator[tuple[Module, ast.AST, ast.stmt]]:
        """The scopes a place is reached in, nearest first, each with its module and the statement that leads
        there."""
        places, seen = [(module, node)], set[ast.AST]()
        while places and len(seen) < _DEPTH:
            home, at = places.pop(0)
            scope = home.function(at) or home.tree
            if scope in seen:
                continue
            seen.add(scope)
            yield home, scope, home.statement(at)
            if isinstance(scope, _Function):
                places += self.links.calls_of(home, scope)


def _method_of(module: Module, node: ast.AST) -> tuple[ast.ClassDef, str] | None:
    function, owner = module.function(node), module.class_of(node)
    if owner is None or not isinstance(function, _Function):
        return None
    return owner, function.name
