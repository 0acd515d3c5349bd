"""Which bindings of a name can be in force at a place: reaching definitions over the blocks of one scope."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Sequence

from codemods.analysis.module import Module
from codemods.analysis.scopes import Binding, BindingKind, Scope

_Live = frozenset[Binding]


def reaching(module: Module, scope: Scope, bindings: Sequence[Binding], use: ast.AST) -> list[Binding]:
    """The bindings of one name that can be in force at `use`, in the order of the text.

    From an inner scope every binding counts, because the time of the call is not known.
    """
    if len(bindings) == 1 and bindings[0].kind is BindingKind.PARAMETER:
        return list(bindings)  # from the first statement on; half of all questions
    inside = module.scope_of(use) is scope
    if not inside or not isinstance(scope.node, _WITH_STATEMENTS):
        return list(bindings)
    hits = _hits(module, scope, bindings).get(module.statement(use))
    # A place that no path reaches is dead code, or code after a jump this walk does not see through.
    if hits is None:
        return list(bindings)
    return [b for b in bindings if b in hits or _is_from_inside(module, scope, b)]


def bound_between(module: Module, one: ast.expr, other: ast.expr) -> list[Binding]:
    """The bindings of a name that can be in force at the second place and not at the first."""
    found = module.scope_of(one).lookup(one.id) if isinstance(one, ast.Name) else None
    if found is None:
        return []
    here = reaching(module, *found, one)
    return [binding for binding in reaching(module, *found, other) if binding not in here]


def imported_by(module: Module, scope: Scope, name: str, use: ast.AST) -> list[Binding]:
    """The bindings of a name that a place of a scope can mean, where several branches import it.

    A function or class within the scope is taken to run where it is defined.
    """
    bindings = scope.bindings[name]
    targets = {b.target for b in bindings if b.kind is BindingKind.IMPORT}
    if len(targets) < 2 or not scope.is_function:
        return bindings
    while module.scope_of(use) is not scope:
        use = module.scope_of(use).node
    return reaching(module, scope, bindings, use)


def _is_from_inside(module: Module, scope: Scope, binding: Binding) -> bool:
    """Whether a function within the scope binds the name (`global`, `nonlocal`): it can run at any time."""
    if binding.kind is BindingKind.PARAMETER:
        return False
    return module.scope_of(module.statement(binding.node)) is not scope


def _hits(module: Module, scope: Scope, bindings: Sequence[Binding]) -> dict[ast.stmt, _Live]:
    """Statement -> the bindings in force there; one walk for all uses of a name in its scope."""
    name = bindings[0].name if bindings else ""
    is_whole = scope.bindings.get(name) is bindings
    if is_whole and (scope, name) in module.flows:
        return module.flows[scope, name]
    assert isinstance(scope.node, _WITH_STATEMENTS)
    walker = _Walker(module, bindings)
    walker.block(scope.node.body, frozenset(b for b in bindings if b.kind is BindingKind.PARAMETER))
    if is_whole:
        module.flows[scope, name] = walker.hits
    return walker.hits


if sys.version_info >= (3, 11):
    _TRY = (ast.Try, ast.TryStar)
else:
    _TRY = (ast.Try,)
_SIMPLE = (ast.Expr, ast.Assign, ast.AugAssign, ast.AnnAssign)
"""Most statements."""
_WITH_STATEMENTS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


class _Walker:
    """Runs a scope's statements in the abstract; what is live is a set of bindings, None after a jump."""

    def __init__(self, module: Module, bindings: Iterable[Binding]) -> None:
        self._at: dict[ast.stmt, list[Binding]] = {}
        for binding in bindings:
            if binding.kind is not BindingKind.PARAMETER:
                self._at.setdefault(module.statement(binding.node), []).append(binding)
        self._jumps: list[set[Binding]] = []
        self.hits: dict[ast.stmt, _Live] = {}

    def block(self, statements: Sequence[ast.stmt], live: _Live | None) -> _Live | None:
        for statement in statements:
            if live is None:
                return None
            live = self._statement(statement, live)
        return live

    def _statement(self, statement: ast.stmt, live: _Live) -> _Live | None:
        known = self.hits.get(statement)
        here = (
            live | frozenset(b for b in self._at[statement] if _is_walrus(b))
            if statement in self._at
            else live
        )
        self.hits[statement] = here if known is None else known | here
        if isinstance(statement, _SIMPLE):
            return self._bound(statement, live)
        match statement:
            case ast.If():
                live = self._bound(statement, live)
                return _either(self.block(statement.body, live), self.block(statement.orelse, live))
            case ast.For() | ast.AsyncFor() | ast.While():
                return self._loop(statement, live)
            case ast.With() | ast.AsyncWith():
                return self.block(statement.body, self._bound(statement, live))
            case ast.Match():
                live = self._bound(statement, live, statement.subject)
                ends = [self.block(case.body, self._bound(statement, live, case)) for case in statement.cases]
                return _either(live, *ends)
            case ast.Return() | ast.Raise():
                return None
            case ast.Break() | ast.Continue():
                if self._jumps:
                    self._jumps[-1] |= live
                return None
            case _ if isinstance(statement, _TRY):
                return self._try(statement, live)
        return self._bound(statement, live)

    def _bound(self, statement: ast.stmt, live: _Live, part: ast.AST | None = None) -> _Live:
        """What is live once a statement, or a part of it, has bound its names; its blocks left out."""
        new = self._at.get(statement, [])
        if new and part is not None:
            inside = set(ast.walk(part))
            new = [binding for binding in new if binding.node in inside]
        if not new:
            return live
        keeps = all(b.kind is BindingKind.AUGMENT or _is_walrus(b) for b in new)
        return live | frozenset(new) if keeps else frozenset(new)

    def _loop(self, loop: ast.For | ast.AsyncFor | ast.While, live: _Live) -> _Live | None:
        self._jumps.append(set())
        around: _Live = live
        for _ in range(2):
            end = self.block(loop.body, self._bound(loop, around))
            around = around | (end or frozenset()) | frozenset(self._jumps[-1])
        self._jumps.pop()
        return self.block(loop.orelse, around)

    def _try(self, statement: ast.Try, live: _Live) -> _Live | None:
        done = self.block(statement.orelse, self.block(statement.body, live))
        first, last = statement.body[0].lineno, statement.body[-1].end_lineno or 0
        partial = live.union(
            *(new for at, new in self._at.items() if first <= at.lineno <= last and at is not statement)
        )
        ends = [self.block(h.body, self._bound(statement, partial, h)) for h in statement.handlers]
        after = _either(done, *ends)
        if after is None:
            self.block(statement.finalbody, partial)
            return None
        return self.block(statement.finalbody, after)


def _is_walrus(binding: Binding) -> bool:
    return isinstance(binding.node, ast.NamedExpr)


def _either(*ends: _Live | None) -> _Live | None:
    alive = [end for end in ends if end is not None]
    return frozenset().union(*alive) if alive else None
