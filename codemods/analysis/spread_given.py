"""Where a mark goes on to from an argument of a call: parameters, fields, containers, what the call gives."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from codemods.analysis.calls import PREPARED, UNWRAPPED
from codemods.analysis.containers import KEEPING
from codemods.analysis.holding import Instance, in_order
from codemods.analysis.indirect_calls import handed_on, meant_by
from codemods.analysis.module import Module, last_name
from codemods.analysis.own_classes import meant_by_self
from codemods.analysis.scopes import FunctionNode
from codemods.analysis.shelf import Before
from codemods.analysis.spread import Spread
from codemods.analysis.spread_arguments import given_functions
from codemods.analysis.spread_marks import INSIDE, RECORD, Family, Mark, Taker
from codemods.analysis.stores import FILLS

if TYPE_CHECKING:
    from codemods.analysis.spread_uses import Uses

_GIVES_ARGUMENTS = KEEPING | PREPARED | {"dict", "enumerate", "zip", "cast"}
_GIVES_ARGUMENT = {
    **dict.fromkeys(UNWRAPPED | {"compile", "copy", "partial", "replace", "next"}, 0),
    "get": 1,
    "pop": 1,
    "setdefault": 1,
    "getattr": 2,
}
"""Calls that give back their arguments, or one of them."""


class Given:
    """Hands on marks that are arguments."""

    def __init__(self, spread: Spread, uses: Uses) -> None:
        self._spread = spread
        self._links = spread.links
        self._uses = uses
        self._keeps: dict[str, bool] = {}

    def ways(self, module: Module, call: ast.Call, place: ast.AST, node: ast.expr) -> Iterator[Taker]:
        """Where what is marked goes on to, if it is an argument."""
        spread, function = self._spread, call.func
        name = last_name(function)
        at = _GIVES_ARGUMENT.get(name)
        if name in _GIVES_ARGUMENTS or (at is not None and call.args[at : at + 1] == [node]):
            yield spread.adds(module, call)
        if name == "getattr" and len(call.args) > 1 and call.args[0] is node:
            yield partial(self._asked_for, module, call)
        match call:
            case ast.Call(func=ast.Name(id="setattr"), args=[holder, ast.Constant(value=word), value]):
                if value is node:
                    yield from self._uses.stores(module, holder, str(word))
        if isinstance(function, ast.Attribute) and name in FILLS:
            yield from self._uses.binds(module, [function.value])
        if name == "replace" and isinstance(place, ast.keyword) and place.arg is not None:
            yield from self._replaced(module, call, place.arg)
        yield from self._to_parameters(module, call, place, node)

    def _asked_for(self, module: Module, call: ast.Call, mark: Mark) -> None:
        name = call.args[1].value if isinstance(call.args[1], ast.Constant) else None
        if not isinstance(name, str):
            return
        spread = self._spread
        owner = spread.objects(mark, module) if isinstance(mark, ast.ClassDef) else mark
        if name in INSIDE:
            spread.add(module, call, mark)
        if isinstance(owner, Family):
            spread.take_attribute(owner, name, lambda found: spread.add(module, call, found))
        elif owner is RECORD:
            for any_of in (name, ""):
                spread.take_attribute(RECORD, any_of, lambda found: spread.add(module, call, found))

    def _replaced(self, module: Module, call: ast.Call, name: str) -> Iterator[Taker]:
        for held in in_order(self._links.held(module, call.args[0])) if call.args else ():
            if isinstance(held, Instance):
                yield partial(self._spread.put_attribute, self._spread.family(held.node, held.module), name)

    def _to_parameters(
        self, module: Module, call: ast.Call, place: ast.AST, node: ast.expr
    ) -> Iterator[Taker]:
        symbol = self._links.index.resolve(module, call.func)
        if symbol is not None and symbol.module is None:
            if symbol.name in ("types.SimpleNamespace", "argparse.Namespace"):
                yield partial(self._record, module, call, place)
        elif symbol is not None and isinstance(symbol.node, ast.ClassDef) and symbol.module is not None:
            yield from self._construct(module, call, place, symbol.node, symbol.module)
        elif symbol is None and (own := meant_by_self(self._links.classes, module, call.func)):
            for owner, home in own:
                yield from self._construct(module, call, place, owner, home)
        elif symbol is None and isinstance(call.func, ast.Name) and self._is_record(module, call.func):
            yield partial(self._record, module, call, place)
            yield self._spread.adds(module, call)
        for home, function, bound in given_functions(self._links, module, call):
            yield from self._to_parameter(home, function, call, place, bound=bound)
        for function_node, arguments, keywords in handed_on(call):
            given = [*arguments, *(k.value for k in keywords)]
            is_inside = isinstance(place, ast.keyword) and place.arg in ("args", "kwargs")
            if is_inside or any(one is node or getattr(one, "value", None) is node for one in given):
                yield from self._to_every_parameter(module, function_node)
        if symbol is None and isinstance(call.func, ast.Attribute) and self._is_kept(call.func.attr):
            yield self._spread.adds(module, call)  # what is kept there may give its argument back

    def _is_kept(self, name: str) -> bool:
        """Whether an attribute of that name is assigned somewhere: calling it can run any function."""
        if name not in self._keeps:
            where = self._links.shelf.where
            self._keeps[name] = bool(
                where(name, rb"\s*(?::[^=\n]*)?=(?!=)", Before.A_DOT)
                or where(name, rb"[^=\n]*=(?!=)", before=rb"(?:^|\n)[ \t]+")
                or where(name, rb"[\'\"]", before=rb"\bsetattr\s*\([^\'\"]*[\'\"]")
            )
        return self._keeps[name]

    def _is_record(self, module: Module, name: ast.Name) -> bool:
        found = module.scope_of(name).lookup(name.id)
        return any(
            isinstance(b.value, ast.Call) and ast.unparse(b.value.func).endswith("namedtuple")
            for b in (found[1] if found is not None else ())
        )

    def _record(self, module: Module, call: ast.Call, place: ast.AST, mark: Mark) -> None:
        spread = self._spread
        spread.add(module, call, RECORD)
        if isinstance(place, ast.keyword) and place.arg is not None:
            spread.put_attribute(RECORD, place.arg, mark)
            return
        # By position, or out of `**`: any attribute of such an object.
        spread.put_attribute(RECORD, "", mark)

    def _construct(
        self, module: Module, call: ast.Call, place: ast.AST, owner: ast.ClassDef, home: Module
    ) -> Iterator[Taker]:
        """Into fields of a dataclass or named tuple."""
        spread, family = self._spread, self._spread.family(owner, home)
        fields = self._links.classes.fields(owner, home)
        if isinstance(place, ast.keyword) and place.arg is not None:
            names = [place.arg] if place.arg in fields else []
        else:
            names = fields
        yield from (partial(spread.put_attribute, family, name) for name in names)
        if self._links.classes.is_named_tuple(owner, home):
            yield spread.adds(module, call)

    def _to_parameter(
        self, home: Module, function: FunctionNode, call: ast.Call, place: ast.AST, *, bound: bool
    ) -> Iterator[Taker]:
        for name in _parameters(function, call, place, bound=bound):
            yield partial(self._spread.put_variable, home, home.table.scopes[function], name)

    def _to_every_parameter(self, module: Module, function: ast.expr) -> Iterator[Taker]:
        definition = meant_by(self._links.index, self._links.classes, module, function)
        home, node = definition if definition is not None else (module, None)
        if isinstance(node, ast.ClassDef):
            yield from self._construct(module, ast.Call(function, [], []), node, node, home)
            methods = self._links.classes.methods(Instance(node, home), "__init__")
            home, node = methods[0] if methods else (home, None)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for parameter in _all_parameters(node):
                yield partial(self._spread.put_variable, home, home.table.scopes[node], parameter)


def _all_parameters(function: FunctionNode) -> Iterator[str]:
    arguments = function.args
    for parameter in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        yield parameter.arg
    for extra in (arguments.vararg, arguments.kwarg):
        if extra is not None:
            yield extra.arg


def _parameters(function: FunctionNode, call: ast.Call, place: ast.AST, *, bound: bool) -> Iterator[str]:
    """The parameters that an argument of a call may go to."""
    arguments = function.args
    positional = [a.arg for a in (*arguments.posonlyargs, *arguments.args)][bound:]
    named = {*positional, *(a.arg for a in arguments.kwonlyargs)}
    if isinstance(place, ast.keyword):
        if place.arg is None:
            yield from _all_parameters(function)
        elif place.arg in named:
            yield place.arg
        elif arguments.kwarg is not None:
            yield arguments.kwarg.arg
        return
    at = next((i for i, argument in enumerate(call.args) if argument is place), 0)
    if any(isinstance(a, ast.Starred) for a in call.args[: at + 1]):
        yield from (
            positional[min(at, len(positional)) :] if not isinstance(place, ast.Starred) else positional
        )
    elif at < len(positional):
        yield positional[at]
    if arguments.vararg is not None and (at >= len(positional) or isinstance(place, ast.Starred)):
        yield arguments.vararg.arg
