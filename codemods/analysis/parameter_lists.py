"""Whose parameters a list, an iterator or an optimizer has."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from codemods.analysis.flow import reaching
from codemods.analysis.module import Module
from codemods.analysis.optimizer_classes import group_owners
from codemods.analysis.scopes import BindingKind, Scope

if TYPE_CHECKING:
    from codemods.analysis.link import Links

NAMES = ("parameters", "named_parameters")
OwnerAt: TypeAlias = "tuple[Module, ast.expr]"
KEEPING = frozenset({"list", "tuple", "iter", "sorted", "reversed", "set", "dict", "tqdm", "filter", "chain"})
_MOST = 200


def parameters_of(node: ast.AST) -> ast.expr | None:
    """`m` of `m.parameters()` and `m.named_parameters()`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in NAMES:
        return node.func.value
    return None


def _first(call: ast.Call) -> ast.expr | None:
    """What an optimizer is built from: its first argument, or `params`."""
    if call.args:
        return call.args[0]
    return next((k.value for k in call.keywords if k.arg == "params"), None)


@dataclass(slots=True)
class ParameterLists:
    """The part of `Links` that is about parameters."""

    links: Links
    _owners: dict[ast.Call, list[OwnerAt]] = field(default_factory=dict)

    def owners(self, module: Module, call: ast.Call) -> list[OwnerAt]:
        """`m` of every `m.parameters()` or `m.named_parameters()` that a call is given, through names."""
        known = self._owners.get(call)
        if known is None:
            known = self._found(module, call)
            if not self.links.depth:  # within a circle answers are partial
                self._owners[call] = known
        return known

    def _found(self, module: Module, call: ast.Call) -> list[OwnerAt]:
        found: list[OwnerAt] = []
        seen: set[ast.AST] = set()
        groups: set[ast.AST | None] = {_first(call)}
        waiting: list[tuple[Module, ast.AST]] = [
            (module, given) for given in (*call.args, *(k.value for k in call.keywords))
        ]
        while waiting and len(seen) < _MOST:
            home, node = waiting.pop()
            if node in seen:
                continue
            seen.add(node)
            if node in self.links.wraps:
                continue  # a model: what its wrap is given, such as `ignored_states`, are other lists
            for part in ast.walk(node):
                owner = parameters_of(part)
                leads: list[tuple[Module, ast.AST]] = []
                if owner is not None:
                    found += [(home, whole) for whole in self._with_module(home, owner)]
                elif isinstance(part, ast.Call):
                    leads = self._returned(home, part, gives_groups=part in groups)
                elif isinstance(part, ast.Name):
                    leads = self._bound(home, part)
                waiting += leads
                groups |= {value for _, value in leads} if part in groups else set()
        return found

    def _returned(
        self, module: Module, call: ast.Call, *, gives_groups: bool
    ) -> list[tuple[Module, ast.AST]]:
        """What a function of the project returns that only gives parameter groups: by its name, or because
        an optimizer is built from nothing else."""
        found: list[tuple[Module, ast.AST]] = []
        for home, function in self.links.functions.meant(module, call.func):
            if not isinstance(function, ast.Lambda) and (gives_groups or "param" in function.name):
                found += [(home, value) for value in home.results(function)[0]]
        return found

    def _bound(self, module: Module, name: ast.Name) -> list[tuple[Module, ast.AST]]:
        seen = module.scope_of(name).lookup(name.id)
        if seen is None:
            return []
        bound = [b.value for b in reaching(module, *seen, name) if b.value is not None]
        return [(module, value) for value in (*bound, *self._put_into(module, seen[0], name))]

    def _put_into(self, module: Module, scope: Scope, name: ast.Name) -> Iterator[ast.expr]:
        """What a container has been given before a place: `groups.append({"params": decay})`."""
        end = module.span(name).end
        for item in self.links.stores.items_here(module, name.id):
            there = module.scope_of(item.container).lookup(name.id)
            is_it = isinstance(item.container, ast.Name) and there is not None and there[0] is scope
            if is_it and module.span(item.container).start < end:
                yield item.value

    def iterated(self, module: Module, node: ast.expr, depth: int = 6) -> Iterator[ast.expr]:
        """`m` where an expression is an iterable of parameters of m and nothing else.

        `m.parameters()`, `list(...)` of it, a comprehension that keeps some of them, a name of one; of an
        optimizer m the parameters of a group: `group["params"]`.
        """
        match node:
            case ast.Subscript(value=group, slice=ast.Constant(value="params")):
                yield from group_owners(module, group)
            case ast.Call(func=ast.Attribute(value=owner, attr=name)) if name in NAMES:
                yield owner
            case ast.Attribute(value=owner, attr="_parameters"):
                yield from self._with_module(module, owner)
            case ast.Call(func=ast.Attribute(value=owner, attr="values" | "items" | "keys")) if depth:
                yield from self.iterated(module, owner, depth - 1)
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=[*_, last]) if (
                depth and name in KEEPING
            ):
                yield from self.iterated(module, last, depth - 1)
            case ast.ListComp() | ast.GeneratorExp() | ast.SetComp() | ast.DictComp() if depth:
                yield from self._filtered(module, node, depth)
            case ast.Name() if depth:
                seen = module.scope_of(node).lookup(node.id)
                for binding in reaching(module, *seen, node) if seen is not None else ():
                    is_assigned = binding.kind is BindingKind.ASSIGN and not binding.unpack
                    if is_assigned and binding.value is not None:
                        yield from self.iterated(module, binding.value, depth - 1)
                    match binding.value, binding.unpack:  # names, parameters = zip(*m.named_parameters())
                        case ast.Call(func=ast.Name(id="zip"), args=[ast.Starred(value=pairs)]), (1,):
                            yield from self.iterated(module, pairs, depth - 1)

    def _with_module(self, module: Module, node: ast.expr) -> Iterator[ast.expr]:
        """The model that a module is looked at with, `for m in model.modules():`, or else the module."""
        seen = module.scope_of(node).lookup(node.id) if isinstance(node, ast.Name) else None
        live = reaching(module, *seen, node) if seen is not None else []
        found: list[ast.expr] = []
        for source in (b.value for b in live if b.kind is BindingKind.LOOP and b.value is not None):
            named = self._bound(module, source) if isinstance(source, ast.Name) else []
            for value in [value for _, value in named] or [source]:
                match value:
                    case ast.Call(func=ast.Attribute(value=model, attr="modules" | "named_modules")):
                        found.append(model)
        yield from found or [node]

    def is_mapping(self, module: Module, node: ast.expr) -> bool:
        """Whether an iterable of parameters is a dict of them, or their names: a loop over it goes over
        names."""
        match node:
            case ast.ListComp(elt=ast.Name(id=name)) | ast.SetComp(elt=ast.Name(id=name)):
                match node.generators[0].target:
                    case ast.Tuple(elts=[ast.Name(id=first), _]):
                        return name == first
            case ast.Call(func=ast.Attribute(attr="keys")) | ast.Call(func=ast.Name(id="dict")):
                return True
            case ast.Attribute(attr="_parameters"):
                return True
            case ast.Name():
                seen = module.scope_of(node).lookup(node.id)
                values = [b.value for b in reaching(module, *seen, node)] if seen is not None else []
                return any(
                    value is not None and not isinstance(value, ast.Name) and self.is_mapping(module, value)
                    for value in values
                )
        return isinstance(node, ast.DictComp)

    def _filtered(
        self,
        module: Module,
        node: ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp,
        depth: int,
    ) -> Iterator[ast.expr]:
        element = node.value if isinstance(node, ast.DictComp) else node.elt
        if not isinstance(element, ast.Name | ast.Tuple):
            return
        kept = {n.id for n in ast.walk(element) if isinstance(n, ast.Name)}
        for generator in node.generators:
            bound = {n.id for n in ast.walk(generator.target) if isinstance(n, ast.Name)}
            if kept & bound:
                yield from self.iterated(module, generator.iter, depth - 1)
