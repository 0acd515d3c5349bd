"""What one call of a function gives back: parameters have the arguments of this call, not of every call."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

from codemods.analysis.arguments import arguments_for
from codemods.analysis.flow import reaching
from codemods.analysis.holding import NOTHING, Held, HeldSet, Path
from codemods.analysis.module import Module
from codemods.analysis.scopes import Binding, BindingKind

if TYPE_CHECKING:
    from codemods.analysis.functions import CallOf, Function
    from codemods.analysis.link import Links

PASS_THROUGH = frozenset(
    {"to", "cuda", "cpu", "half", "float", "bfloat16", "train", "eval", "requires_grad_", "double", "type"}
)
"""Methods of `nn.Module` that give the module back."""

_DEEPEST = 3
_MOST_STEPS = 6


@dataclass(slots=True, eq=False)
class Frame:
    """A function that a call runs; not frozen, which would triple what it costs to make one.

    Attributes:
        home: the module of the function.
        outer: what the function with the call was called by, where that is known.
    """

    home: Module
    function: Function
    call: CallOf
    outer: Frame | None = None

    @property
    def depth(self) -> int:
        """How many calls are known, this one included."""
        return 1 + (self.outer.depth if self.outer is not None else 0)


def given_back(links: Links, frame: Frame, node: ast.expr, path: Path, steps: int = _MOST_STEPS) -> HeldSet:
    """What is at a path of an expression of the function, for this call of it.

    Args:
        steps: how many assignments and arguments may still be followed; loops have no end.
    """
    home = frame.home
    match node:
        case ast.Tuple(elts=elements) if path and isinstance(path[0], int):
            if not any(isinstance(e, ast.Starred) for e in elements) and -len(elements) <= path[0] < len(
                elements
            ):
                return given_back(links, frame, elements[path[0]], path[1:], steps)
        case ast.IfExp():
            body = given_back(links, frame, node.body, path, steps)
            return body | given_back(links, frame, node.orelse, path, steps)
        case ast.Call(func=ast.Attribute(value=owner, attr=name)) if name in PASS_THROUGH:
            return given_back(links, frame, owner, path, steps)
        case ast.Name():
            found = home.scope_of(node).lookup(node.id)
            if found is not None and found[0].node is frame.function:
                bindings = reaching(home, *found, node)
                if all(_is_plain(binding) for binding in bindings):
                    held = NOTHING.union(*(_bound(links, frame, b, path, steps) for b in bindings))
                    return links.variables.filled(home, node, path, held) if path else held
        case ast.Call() if frame.depth < _DEEPEST:
            functions = links.functions.meant(home, node.func)
            if len(functions) == 1 and node not in links.wraps:
                return returned(links, home, node, *functions[0], path, frame, steps)
    return links.at(home, node, path)


def returned(
    links: Links,
    module: Module,
    node: ast.Call,
    home: Module,
    function: Function,
    path: Path,
    outer: Frame | None = None,
    steps: int = _MOST_STEPS,
) -> HeldSet:
    """What is at a path of what a call gives.

    Args:
        module: the module of the call.
        home: the module of the function.
        outer: the call of the function in which this call stands.
        steps: see `given_back`.
    """
    values, yielded = home.results(function)
    symbol = links.index.resolve(module, node.func)
    is_named = isinstance(node.func, ast.Attribute) or (symbol is not None and symbol.node is function)
    # What a variable holds can be `functools.partial(function, ...)`, which has arguments of its own.
    if isinstance(function, ast.Lambda) or yielded or not is_named:
        return links.functions.returned(home, function, path)
    frame = Frame(home, function, links.functions.call_of(home, function, module, node), outer)
    return NOTHING.union(*(given_back(links, frame, value, path, steps) for value in values))


def _is_plain(binding: Binding) -> bool:
    return binding.kind is BindingKind.PARAMETER or (
        binding.kind is BindingKind.ASSIGN and binding.value is not None
    )


def _bound(links: Links, frame: Frame, binding: Binding, path: Path, steps: int) -> HeldSet:
    if binding.kind is not BindingKind.PARAMETER:
        if isinstance(binding.value, ast.Call | ast.Name | ast.IfExp) and steps:
            return given_back(links, frame, binding.value, (*binding.unpack, *path), steps - 1)
        return links.variables.binding(frame.home, binding, path)
    parameter = binding.node
    assert isinstance(parameter, ast.arg)
    held: set[Held] = set()
    arguments = arguments_for(frame.function, parameter, frame.call.node, path, bound=frame.call.is_bound)
    if not arguments:
        return links.variables.binding(frame.home, binding, path)
    for argument, inner in arguments:
        if frame.outer is not None and steps:
            held |= given_back(links, frame.outer, argument, inner, steps - 1)
        else:
            held |= links.at(frame.call.module, argument, inner)
    return frozenset(held)
