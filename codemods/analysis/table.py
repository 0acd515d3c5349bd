"""A module's syntax tree, looked into function by function.

A walk in Python over every node costs as much as `ast.parse`, and the nodes take thirty times the memory of
the text, while most functions of a repository have nothing to do with sharding. So a function stays *closed*
until something looks at its parameters or body: its node is then a `FunctionDef` of this module, whose
`args`, `returns` and `body` open it when they are read. Whoever walks the tree sees no difference. Parents,
scopes and bindings of what is inside are filled in when it opens. What a module holds of a kind or under a
name is asked of `codemods.analysis.module.Module`, which opens the functions whose text can hold it.

Functions within functions open together with the outermost one.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from codemods.analysis.scopes import COMPREHENSIONS, SCOPES, Binding, Scope, bindings_of

Function: TypeAlias = "ast.FunctionDef | ast.AsyncFunctionDef"
Inside: TypeAlias = "tuple[ast.arguments, ast.expr | None, list[ast.stmt]]"
"""A function's parameters, return annotation and body."""

_SCOPE_TYPES = frozenset(SCOPES)
_FUNCTIONS = frozenset({ast.FunctionDef, ast.AsyncFunctionDef})
_OUTSIDE = ("decorator_list", "type_params")
_INSIDE = ("args", "returns", "body")
_NOT_NODES = frozenset({"ctx", "op", "ops", "id", "attr", "kind", "n", "s", "module", "level", "asname"}) | {
    "type_comment",
    "conversion",
    "simple",
    "is_async",
    "tag",
}
_BINDERS = frozenset(
    {
        ast.Import,
        ast.ImportFrom,
        ast.Assign,
        ast.AnnAssign,
        ast.AugAssign,
        ast.NamedExpr,
        ast.arg,
        ast.FunctionDef,
        ast.AsyncFunctionDef,
        ast.ClassDef,
        ast.For,
        ast.AsyncFor,
        ast.comprehension,
        ast.With,
        ast.AsyncWith,
        ast.ExceptHandler,
        ast.MatchAs,
        ast.MatchStar,
        ast.Global,
        ast.Nonlocal,
    }
)


def _opens(name: str) -> Any:
    def read(node: Any) -> Any:
        node.table.open(node)
        return node.__dict__[name]

    return property(read)


class FunctionDef(ast.FunctionDef):
    """A closed function; named like its base because `ast.unparse` goes by the name."""

    __slots__ = ()
    args, returns, body = _opens("args"), _opens("returns"), _opens("body")


class AsyncFunctionDef(ast.AsyncFunctionDef):
    """A closed `async def`."""

    __slots__ = ()
    args, returns, body = _opens("args"), _opens("returns"), _opens("body")


class _ChildFields(dict[type, "tuple[str, ...] | None"]):
    """Type -> its fields that can hold nodes; None for what is no node. Filled when first asked: this is the
    innermost loop of the whole program."""

    def __missing__(self, kind: type) -> tuple[str, ...] | None:
        fields: tuple[str, ...] | None = None
        if issubclass(kind, ast.Constant):
            fields = ()
        elif issubclass(kind, ast.AST):
            fields = tuple(name for name in kind._fields if name not in _NOT_NODES)
        self[kind] = fields
        return fields


_child_fields = _ChildFields()


@dataclass(slots=True)
class ScopeTable:
    """One module's nodes: their parents, their scopes, and all of one type, as far as they were looked at.

    Attributes:
        parse: parses a closed function again whose inside was not kept.
        parents: child -> parent, operators and contexts (shared singletons) left out.
        scopes: node that makes a scope -> that scope.
        homes: node -> the scope it is evaluated in; decorators, defaults and bases outside what they adorn.
        nodes: type -> nodes of exactly that type.
        closed: functions nobody has looked into, in the order of the text, and their insides; None where
            they are not kept.
    """

    parse: Callable[[Function], Function]
    parents: dict[ast.AST, ast.AST] = field(default_factory=dict)
    scopes: dict[ast.AST, Scope] = field(default_factory=dict)
    homes: dict[ast.AST, Scope] = field(default_factory=dict)
    nodes: dict[type, list[ast.AST]] = field(default_factory=lambda: defaultdict(list))
    closed: dict[Function, Inside | None] = field(default_factory=dict)

    def build(self, tree: ast.Module, *, keep: bool) -> None:
        """Look at a module's top level and its classes; functions stay closed.

        Args:
            keep: whether the insides of closed functions stay in memory.
        """
        self.scopes[tree] = self.homes[tree] = Scope(tree, None)
        self.nodes[ast.Module].append(tree)
        self._explore(tree, _child_fields[ast.Module] or (), closing=True)
        if not keep:
            self.closed = dict.fromkeys(self.closed)

    def open(self, function: Function) -> None:
        """Look into a closed function."""
        inside = self.closed.pop(function)
        if inside is None:
            again = self.parse(function)
            inside = again.args, again.returns, again.body
        is_async = isinstance(function, ast.AsyncFunctionDef)
        function.__class__ = ast.AsyncFunctionDef if is_async else ast.FunctionDef
        function.args, function.returns, function.body = inside
        self._explore(function, _INSIDE, closing=False)

    def _close(self, function: Any, kind: type) -> None:
        held = function.__dict__
        self.closed[function] = held.pop("args"), held.pop("returns", None), held.pop("body")
        function.table = self
        function.__class__ = FunctionDef if kind is ast.FunctionDef else AsyncFunctionDef

    def _explore(self, root: ast.AST, root_fields: tuple[str, ...], *, closing: bool) -> None:
        """Collect parents, scopes and bindings of some fields of a node and of all below, in one walk."""
        parents, homes, nodes = self.parents, self.homes, self.nodes
        binders: list[ast.AST] = []
        stack: list[ast.AST] = [root]
        while stack:
            node = stack.pop()
            kind = node.__class__
            scope = homes[node]
            fields = _child_fields[kind] if node is not root else root_fields
            if kind in _BINDERS and node is not root:
                binders.append(node)
            inner = self.scopes.get(node)
            if kind in _SCOPE_TYPES and inner is None:
                assert isinstance(node, SCOPES)
                inner = self.scopes[node] = Scope(node, scope)
                if closing and kind in _FUNCTIONS:
                    fields = _OUTSIDE
                    self._close(node, kind)
            deeper: list[ast.AST] = []
            for name in fields or ():
                value: Any = getattr(node, name, None)
                for child in value if value.__class__ is list else (value,):
                    below = _child_fields[child.__class__]
                    if below is None:
                        continue
                    parents[child] = node
                    homes[child] = inner if inner is not None and _is_inside(node, name, child) else scope
                    nodes[child.__class__].append(child)
                    if below or child.__class__ in _BINDERS:
                        deeper.append(child)
            deeper.reverse()
            stack += deeper
        self._bind_all(binders)

    def _bind_all(self, binders: Sequence[ast.AST]) -> None:
        for node in binders:
            if isinstance(node, ast.Global | ast.Nonlocal):
                self.homes[node].outward.update(node.names)
        for node in binders:
            for binding in bindings_of(node):
                _bind(self._home(node), binding)
            if isinstance(node, ast.ImportFrom) and any(a.name == "*" for a in node.names):
                self.homes[node].star_imports.append("." * node.level + (node.module or ""))

    def _home(self, node: ast.AST) -> Scope:
        if isinstance(node, ast.arg):
            parent = self.parents[node]
            function = self.parents[parent] if isinstance(parent, ast.arguments) else parent
            return self.scopes[function]
        if isinstance(node, ast.comprehension):
            return self.scopes[self.parents[node]]
        scope = self.homes[node]
        if isinstance(node, ast.NamedExpr):
            while isinstance(scope.node, COMPREHENSIONS) and scope.parent is not None:
                scope = scope.parent
        return scope


def _is_inside(scope: ast.AST, field_name: str, child: ast.AST) -> bool:
    """Whether a direct child of a scope node is evaluated in it (decorators, defaults, bases are not)."""
    if isinstance(scope, COMPREHENSIONS):
        return child is not scope.generators[0]
    return field_name == "body"


def _bind(scope: Scope, binding: Binding) -> None:
    if binding.name in scope.outward and scope.parent is not None:
        outer = scope.parent.lookup(binding.name)
        scope = outer[0] if outer else scope.outermost()
        bound = scope.bindings.setdefault(binding.name, [])
        bound.append(binding)
        bound.sort(key=lambda b: getattr(b.node, "lineno", 0))  # its function opened after the statements
        return
    scope.bindings.setdefault(binding.name, []).append(binding)
