"""One module's nodes: their parents, scopes and bindings, collected in one walk."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from codemods.analysis.scopes import COMPREHENSIONS, SCOPES, Binding, Scope, bindings_of

_SCOPE_TYPES = frozenset(SCOPES)
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
    """One module's nodes: their parents, their scopes, and all of one type.

    Attributes:
        parents: child -> parent, operators and contexts (shared singletons) left out.
        scopes: node that makes a scope -> that scope.
        homes: node -> the scope it is evaluated in; decorators, defaults and bases outside what they adorn.
        nodes: type -> nodes of exactly that type.
    """

    parents: dict[ast.AST, ast.AST] = field(default_factory=dict)
    scopes: dict[ast.AST, Scope] = field(default_factory=dict)
    homes: dict[ast.AST, Scope] = field(default_factory=dict)
    nodes: dict[type, list[ast.AST]] = field(default_factory=lambda: defaultdict(list))

    def build(self, tree: ast.Module) -> None:
        """Collect everything of a module."""
        self.scopes[tree] = self.homes[tree] = Scope(tree, None)
        self.nodes[ast.Module].append(tree)
        parents, homes, nodes = self.parents, self.homes, self.nodes
        binders: list[ast.AST] = []
        stack: list[ast.AST] = [tree]
        while stack:
            node = stack.pop()
            kind = node.__class__
            scope = homes[node]
            if kind in _BINDERS:
                binders.append(node)
            inner: Scope | None = None
            if kind in _SCOPE_TYPES and node is not tree:
                assert isinstance(node, SCOPES)
                inner = self.scopes[node] = Scope(node, scope)
            deeper: list[ast.AST] = []
            for name in _child_fields[kind] or ():
                value: Any = getattr(node, name, None)
                if not value:
                    continue
                home = inner if inner is not None and _is_inside(node, name) else scope
                if kind is ast.comprehension and name == "iter" and _is_first(parents[node], node):
                    home = scope.parent or scope
                for child in value if value.__class__ is list else (value,):
                    fields = _child_fields[child.__class__]
                    if fields is None:
                        continue
                    parents[child] = node
                    homes[child] = home
                    nodes[child.__class__].append(child)
                    if fields or child.__class__ in _BINDERS:
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


def _is_inside(scope: ast.AST, field_name: str) -> bool:
    """Whether a direct child of a scope node is evaluated in it (decorators, defaults, bases are not)."""
    return isinstance(scope, COMPREHENSIONS) or field_name == "body"


def _is_first(scope: ast.AST, generator: ast.AST) -> bool:
    """Whether what a generator iterates over is evaluated outside of the comprehension (reference manual
    6.2.4)."""
    return isinstance(scope, COMPREHENSIONS) and scope.generators[0] is generator


def _bind(scope: Scope, binding: Binding) -> None:
    if binding.name in scope.outward and scope.parent is not None:
        outer = scope.parent.lookup(binding.name)
        scope = outer[0] if outer else scope.outermost()
    scope.bindings.setdefault(binding.name, []).append(binding)
