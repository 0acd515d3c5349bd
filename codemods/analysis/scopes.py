"""Scopes and bindings of one module, from Python's own syntax tree.

Python's rules (reference manual 4.2): a class body's names are not seen from the functions in it;
comprehensions and lambdas are scopes; `global` and `nonlocal` move a binding outward.
"""

from __future__ import annotations

import ast
import enum
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

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
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


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


def below(base: str, name: str) -> str:
    """The dotted target of a name in a module; leading dots kept, of which `from . import x` adds none."""
    return base + name if base.endswith(".") else f"{base}.{name}"


def bindings_of(node: ast.AST) -> Iterator[Binding]:
    match node:  # the commonest first
        case ast.arg():
            yield Binding(node.arg, BindingKind.PARAMETER, node)
        case ast.Assign():
            for assigned in node.targets:
                yield from _targets(assigned, BindingKind.ASSIGN, node, node.value)
        case ast.Import():
            for alias in node.names:
                name = alias.asname or alias.name.split(".")[0]
                target = alias.name if alias.asname else name
                yield Binding(name, BindingKind.IMPORT, node, target=target)
        case ast.ImportFrom():
            base = "." * node.level + (node.module or "")
            for alias in node.names:
                if alias.name != "*":
                    target = below(base, alias.name)
                    yield Binding(alias.asname or alias.name, BindingKind.IMPORT, node, target=target)
        case ast.AnnAssign():
            yield from _targets(node.target, BindingKind.ASSIGN, node, node.value)
        case ast.AugAssign():
            yield from _targets(node.target, BindingKind.AUGMENT, node, node.value)
        case ast.NamedExpr():
            yield from _targets(node.target, BindingKind.ASSIGN, node, node.value)
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


def targets_of(target: ast.expr) -> Iterator[ast.Name | ast.Attribute | ast.Subscript]:
    """The single targets of an assignment's left side."""
    match target:
        case ast.Name() | ast.Attribute() | ast.Subscript():
            yield target
        case ast.Tuple() | ast.List():
            for element in target.elts:
                yield from targets_of(element)
        case ast.Starred():
            yield from targets_of(target.value)


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
