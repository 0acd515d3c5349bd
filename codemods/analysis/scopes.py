"""Scopes and bindings of one module, from Python's own syntax tree.

Python's rules (reference manual 4.2): a class body's names are not seen from the functions in it;
comprehensions and lambdas are scopes; `global` and `nonlocal` move a binding outward.
"""

from __future__ import annotations

import ast
import enum
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

FunctionNode: TypeAlias = "ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda"
ScopeNode: TypeAlias = (
    "ast.Module | ast.ClassDef | FunctionNode | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp"
)

SCOPES = (
    ast.Module,
    ast.ClassDef,
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.Lambda,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
)
_SCOPE_TYPES = frozenset(SCOPES)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class BindingKind(enum.Enum):
    """How a name got its value."""

    IMPORT = "import"
    ASSIGN = "assign"
    AUGMENT = "augment"
    PARAMETER = "parameter"
    DEFINITION = "definition"
    LOOP = "loop"
    CONTEXT = "context"
    OTHER = "other"


@dataclass(frozen=True, slots=True, eq=False)
class Binding:
    """One place where a name is bound.

    Attributes:
        node: the statement, parameter (`ast.arg`) or definition.
        value: the expression assigned, iterated over or entered; None where there is none.
        unpack: positions within a tuple target, outermost first: `a, (b, c) = v` binds c at (1, 1); behind a
            `*rest` they are negative.
        target: for imports, the dotted name imported (leading dots kept).
    """

    name: str
    kind: BindingKind
    node: ast.AST
    value: ast.expr | None = None
    unpack: tuple[int, ...] = ()
    target: str = ""


@dataclass(slots=True, eq=False)
class Scope:
    """Names bound in one module, class, function, lambda or comprehension."""

    node: ScopeNode
    parent: Scope | None
    bindings: dict[str, list[Binding]] = field(default_factory=dict)
    star_imports: list[str] = field(default_factory=list)
    outward: set[str] = field(default_factory=set)

    def lookup(self, name: str) -> tuple[Scope, list[Binding]] | None:
        """The scope that binds a name seen from here, and its bindings."""
        scope: Scope | None = self
        while scope is not None:
            visible = scope is self or not isinstance(scope.node, ast.ClassDef)
            if visible and name in scope.bindings:
                return scope, scope.bindings[name]
            scope = scope.parent
        return None

    @property
    def is_function(self) -> bool:
        return isinstance(self.node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)

    def outermost(self) -> Scope:
        """The module's scope."""
        scope = self
        while scope.parent is not None:
            scope = scope.parent
        return scope


@dataclass(slots=True)
class ScopeTable:
    """One module's nodes: their parents, their scopes, and all of one type.

    Attributes:
        parents: child -> parent, operators and contexts (shared singletons) left out.
        scopes: node that makes a scope -> that scope.
        homes: node -> the scope it is evaluated in; decorators, defaults and bases outside what they adorn.
        nodes: type -> nodes of exactly that type.
    """

    parents: dict[ast.AST, ast.AST]
    scopes: dict[ast.AST, Scope]
    homes: dict[ast.AST, Scope]
    nodes: dict[type, list[ast.AST]]

    def scope_of(self, node: ast.AST) -> Scope:
        """The scope in which an expression at `node` looks up its names."""
        return self.homes[node]


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


def build_scopes(tree: ast.Module) -> ScopeTable:
    """Collect parents, scopes and bindings of a module in one walk."""
    top = Scope(tree, None)
    table = ScopeTable({}, {tree: top}, {tree: top}, defaultdict(list, {ast.Module: [tree]}))
    parents, homes, nodes = table.parents, table.homes, table.nodes
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
            inner = table.scopes[node] = Scope(node, scope)
        deeper: list[ast.AST] = []
        for name in _child_fields[kind] or ():
            value: Any = getattr(node, name, None)
            for child in value if value.__class__ is list else (value,):
                fields = _child_fields[child.__class__]
                if fields is None:
                    continue
                parents[child] = node
                homes[child] = inner if inner is not None and _is_inside(node, name) else scope
                if kind is ast.comprehension and name == "iter" and _is_first(parents[node], node):
                    homes[child] = scope.parent or scope
                nodes[child.__class__].append(child)
                if fields or child.__class__ in _BINDERS:
                    deeper.append(child)
        deeper.reverse()
        stack += deeper
    _bind_all(table, binders)
    return table


def _is_inside(scope: ast.AST, field_name: str) -> bool:
    """Whether a direct child of a scope node is evaluated in it (decorators, defaults, bases are not)."""
    return isinstance(scope, _COMPREHENSIONS) or field_name == "body"


def _is_first(scope: ast.AST, generator: ast.AST) -> bool:
    """Whether what a generator iterates over is evaluated outside of the comprehension (reference manual
    6.2.4)."""
    return isinstance(scope, _COMPREHENSIONS) and scope.generators[0] is generator


def _bind_all(table: ScopeTable, binders: list[ast.AST]) -> None:
    for node in binders:
        if isinstance(node, ast.Global | ast.Nonlocal):
            table.homes[node].outward.update(node.names)
    for node in binders:
        for binding in _bindings_of(node):
            _bind(_home(table, node), binding)
        if isinstance(node, ast.ImportFrom) and any(a.name == "*" for a in node.names):
            table.homes[node].star_imports.append("." * node.level + (node.module or ""))


def _home(table: ScopeTable, node: ast.AST) -> Scope:
    if isinstance(node, ast.arg):
        parent = table.parents[node]
        function = table.parents[parent] if isinstance(parent, ast.arguments) else parent
        return table.scopes[function]
    if isinstance(node, ast.comprehension):
        return table.scopes[table.parents[node]]
    scope = table.scope_of(node)
    if isinstance(node, ast.NamedExpr):
        while isinstance(scope.node, _COMPREHENSIONS) and scope.parent is not None:
            scope = scope.parent
    return scope


def _bind(scope: Scope, binding: Binding) -> None:
    if binding.name in scope.outward and scope.parent is not None:
        outer = scope.parent.lookup(binding.name)
        scope = outer[0] if outer else scope.outermost()
    scope.bindings.setdefault(binding.name, []).append(binding)


def _bindings_of(node: ast.AST) -> Iterator[Binding]:
    match node:
        case ast.Import():
            for alias in node.names:
                name = alias.asname or alias.name.split(".")[0]
                target = alias.name if alias.asname else name
                yield Binding(name, BindingKind.IMPORT, node, target=target)
        case ast.ImportFrom():
            base = "." * node.level + (node.module or "")
            for alias in node.names:
                if alias.name != "*":
                    target = base + alias.name if base.endswith(".") else f"{base}.{alias.name}"
                    yield Binding(alias.asname or alias.name, BindingKind.IMPORT, node, target=target)
        case ast.Assign():
            for assigned in node.targets:
                yield from _targets(assigned, BindingKind.ASSIGN, node, node.value)
        case ast.AnnAssign():
            yield from _targets(node.target, BindingKind.ASSIGN, node, node.value)
        case ast.AugAssign():
            yield from _targets(node.target, BindingKind.AUGMENT, node, node.value)
        case ast.NamedExpr():
            yield from _targets(node.target, BindingKind.ASSIGN, node, node.value)
        case ast.arg():
            yield Binding(node.arg, BindingKind.PARAMETER, node)
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            yield Binding(node.name, BindingKind.DEFINITION, node)
        case ast.For() | ast.AsyncFor():
            yield from _targets(node.target, BindingKind.LOOP, node, node.iter)
        case ast.comprehension():
            yield from _targets(node.target, BindingKind.LOOP, node, node.iter)
        case ast.With() | ast.AsyncWith():
            for item in node.items:
                if item.optional_vars is not None:
                    yield from _targets(item.optional_vars, BindingKind.CONTEXT, node, item.context_expr)
        case ast.ExceptHandler() if node.name:
            yield Binding(node.name, BindingKind.OTHER, node)
        case ast.MatchAs() | ast.MatchStar() if node.name:
            yield Binding(node.name, BindingKind.OTHER, node)


def _targets(
    target: ast.expr, kind: BindingKind, node: ast.AST, value: ast.expr | None, unpack: tuple[int, ...] = ()
) -> Iterator[Binding]:
    match target:
        case ast.Name():
            yield Binding(target.id, kind, node, value, unpack)
        case ast.Tuple() | ast.List():
            starred = next((i for i, e in enumerate(target.elts) if isinstance(e, ast.Starred)), None)
            for position, element in enumerate(target.elts):
                # Behind `*rest` positions are counted from the end.
                behind = starred is not None and position > starred
                at = position - len(target.elts) if behind else position
                yield from _targets(element, kind, node, value, (*unpack, at))
        case ast.Starred():
            yield from _targets(target.value, BindingKind.OTHER, node, value, unpack)
