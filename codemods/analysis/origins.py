"""Where an object comes from, and which of two places is reached first.

`Links` says what an expression holds; here it is followed to the places where the object was made, so that
two expressions can be found to mean the same object though one is sharded by then and the other is not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from codemods.analysis.arguments import arguments_for
from codemods.analysis.flow import reaching
from codemods.analysis.frames import PASS_THROUGH
from codemods.analysis.holding import Instance
from codemods.analysis.link import Links
from codemods.analysis.module import Module
from codemods.analysis.scopes import Binding, BindingKind

_DEPTH = 40
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(slots=True)
class Origins:
    """Answers where objects were made.

    Attributes:
        homes: the module of each place that an answer named.
    """

    links: Links
    homes: dict[ast.AST, Module] = field(default_factory=dict)
    _active: set[ast.AST] = field(default_factory=set)

    def of(self, module: Module, node: ast.expr) -> frozenset[ast.AST]:
        """The calls (or parameters of functions that nobody calls) that made what an expression holds.

        A wrap gives the module it is given, since `fully_shard` works in place.
        """
        if node in self._active or len(self._active) > _DEPTH:
            return frozenset()
        self._active.add(node)
        try:
            return self._of(module, node)
        finally:
            self._active.discard(node)

    def _of(self, module: Module, node: ast.expr) -> frozenset[ast.AST]:
        match node:
            case ast.Name():
                return self._name(module, node)
            case ast.Attribute():
                return self._attribute(module, node)
            case ast.Call():
                return self._call(module, node)
            case ast.IfExp():
                return self.of(module, node.body) | self.of(module, node.orelse)
            case ast.BoolOp():
                return frozenset().union(*(self.of(module, value) for value in node.values))
            case ast.NamedExpr():
                return self.of(module, node.value)
        return frozenset()

    def _name(self, module: Module, node: ast.Name) -> frozenset[ast.AST]:
        found = module.scope_of(node).lookup(node.id)
        live = reaching(module, *found, node) if found is not None else []
        return frozenset().union(*(self._binding(module, binding) for binding in live))

    def _binding(self, module: Module, binding: Binding) -> frozenset[ast.AST]:
        if binding.kind is BindingKind.PARAMETER:
            return self._parameter(module, binding)
        if binding.kind is not BindingKind.ASSIGN or binding.value is None:
            return frozenset()
        return self._element(module, binding.value, binding.unpack)

    def _element(self, module: Module, value: ast.expr, path: tuple[int, ...]) -> frozenset[ast.AST]:
        if not path:
            return self.of(module, value)
        if isinstance(value, ast.Tuple | ast.List):
            is_there = -len(value.elts) <= path[0] < len(value.elts)
            if not is_there or any(isinstance(element, ast.Starred) for element in value.elts):
                return frozenset()
            return self._element(module, value.elts[path[0]], path[1:])
        function = self._function(module, value.func) if isinstance(value, ast.Call) else None
        if function is None or value in self._active:
            return frozenset()
        self._active.add(value)
        try:
            home, definition = function
            parts = [self._element(home, one, path) for one in home.results(definition)[0]]
        finally:
            self._active.discard(value)
        return frozenset().union(*parts)

    def _parameter(self, module: Module, binding: Binding) -> frozenset[ast.AST]:
        parameter = binding.node
        arguments = module.parent(parameter)
        function = module.parent(arguments) if arguments is not None else None
        if not isinstance(function, _Function) or not isinstance(parameter, ast.arg):
            return frozenset()
        calls = self.links.functions.calls(module, function)
        if not calls:
            return self._made(module, parameter)
        found: set[ast.AST] = set()
        for call in calls:
            for given, path in arguments_for(function, parameter, call.node, (), bound=call.is_bound):
                if not path:
                    found |= self.of(call.module, given)
        return frozenset(found)

    def _attribute(self, module: Module, node: ast.Attribute) -> frozenset[ast.AST]:
        owners = [h for h in self.links.held(module, node.value) if isinstance(h, Instance)]
        found: set[ast.AST] = set()
        classes = {c: m for o in owners for c, m in self.links.classes.lineage(o.node, o.module)}
        homes = dict.fromkeys(sorted(classes.values(), key=lambda home: home.path))
        for store in (s for home in homes for s in self.links.stores.here(home, node.attr)):
            is_own = isinstance(store.holder, ast.Name) and store.holder.id == "self"
            if is_own and store.module.class_of(store.holder) in classes:
                found |= self._element(store.module, store.value, store.unpack)
        return frozenset(found)

    def _call(self, module: Module, node: ast.Call) -> frozenset[ast.AST]:
        site = self.links.wraps.get(node)
        if site is not None:
            return self.of(module, site.wrapped) if site.wrapped is not None else frozenset()
        if isinstance(node.func, ast.Attribute) and node.func.attr in PASS_THROUGH:
            return self.of(module, node.func.value)
        function = self._function(module, node.func)
        if function is None:
            return self._made(module, node)
        home, definition = function
        returned = (self.of(home, one) for one in home.results(definition)[0])
        return frozenset().union(*returned)

    def _function(self, module: Module, callee: ast.expr) -> tuple[Module, _Function] | None:
        meant = self.links.functions.meant(module, callee)
        return next(((home, one) for home, one in meant if isinstance(one, _Function)), None)

    def _made(self, module: Module, node: ast.AST) -> frozenset[ast.AST]:
        self.homes[node] = module
        return frozenset({node})

    def is_earlier(self, one: tuple[Module, ast.AST], other: tuple[Module, ast.AST]) -> bool:
        """Whether a place is reached before another, as far as one function shows both.

        Each place is followed to the calls of its function, and theirs. A constructor comes before the other
        methods of its class.
        """
        first = list(self._reached_from(*one))
        second = {scope: statement for _, scope, statement in self._reached_from(*other)}
        for module, scope, here in first:
            there = second.get(scope, here)
            if here is not there:
                return module.span(here).start < module.span(there).start
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
