"""Where attributes and items are put: `x.name = v`, `c[k] = v`, `c.append(v)`, by the last name written."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from codemods.analysis.holding import Path, key_of
from codemods.analysis.module import Module

_ONE = frozenset({"append", "add", "appendleft"})
_MANY = frozenset({"extend", "update", "extendleft"})


@dataclass(frozen=True, slots=True, eq=False)
class AttributeStore:
    """`holder.name = value`, or `setattr(holder, "name", value)`.

    Attributes:
        target: the attribute, or the call of `setattr`.
        unpack: positions within a tuple target.
    """

    module: Module
    target: ast.Attribute | ast.Call
    holder: ast.expr
    value: ast.expr
    unpack: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class ItemStore:
    """Something put into a container.

    Attributes:
        node: the statement or call.
        container: the variable or attribute that holds it, subscripts taken off.
        keys: where in the container.
        is_spread: `value` is itself a container whose elements are put there.
    """

    module: Module
    node: ast.AST
    container: ast.Name | ast.Attribute
    keys: Path
    value: ast.expr
    is_spread: bool = False


class Stores:
    """Every store of the project, found in one walk when first asked for."""

    def __init__(self, modules: dict[str, Module]) -> None:
        self._modules = modules
        self._attributes: dict[str, list[AttributeStore]] | None = None
        self._items: dict[str, list[ItemStore]] = {}

    def attributes(self, name: str) -> list[AttributeStore]:
        """Every assignment to an attribute of that name."""
        return self._read().get(name, [])

    def items(self, name: str) -> list[ItemStore]:
        """Everything put into containers that a variable or attribute of that name holds."""
        self._read()
        return self._items.get(name, [])

    def _read(self) -> dict[str, list[AttributeStore]]:
        if self._attributes is None:
            self._attributes = {}
            for module in list(self._modules.values()):
                for store in _attribute_stores(module):
                    name = _name_of(store.target)
                    self._attributes.setdefault(name, []).append(store)
                for item in _item_stores(module):
                    container = item.container
                    name = container.id if isinstance(container, ast.Name) else container.attr
                    self._items.setdefault(name, []).append(item)
        return self._attributes


def _name_of(target: ast.Attribute | ast.Call) -> str:
    if isinstance(target, ast.Attribute):
        return target.attr
    name = target.args[1]
    assert isinstance(name, ast.Constant)
    return str(name.value)


def _attribute_stores(module: Module) -> Iterator[AttributeStore]:
    for kind in (ast.Assign, ast.AnnAssign):
        for node in module.nodes(kind):
            assert isinstance(node, ast.Assign | ast.AnnAssign)
            if node.value is None:
                continue
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                for attribute, unpack in _targets(target):
                    yield AttributeStore(module, attribute, attribute.value, node.value, unpack)
    for call in module.calls():
        match call:
            case ast.Call(func=ast.Name(id="setattr"), args=[holder, ast.Constant(value=str()), value]):
                yield AttributeStore(module, call, holder, value)


def _targets(
    target: ast.expr, unpack: tuple[int, ...] = ()
) -> Iterable[tuple[ast.Attribute, tuple[int, ...]]]:
    if isinstance(target, ast.Attribute):
        yield target, unpack
    elif isinstance(target, ast.Tuple | ast.List):
        for position, element in enumerate(target.elts):
            yield from _targets(element, (*unpack, position))


def _item_stores(module: Module) -> Iterator[ItemStore]:
    for node in module.nodes(ast.Assign):
        assert isinstance(node, ast.Assign)
        for target in node.targets:
            if isinstance(target, ast.Subscript):
                yield from _stored(module, node, target.value, (key_of(target.slice),), node.value)
    for node in module.nodes(ast.AugAssign):
        assert isinstance(node, ast.AugAssign)
        yield from _stored(module, node, node.target, (), node.value, is_spread=True)
    for call in module.calls():
        if isinstance(call.func, ast.Attribute):
            yield from _by_method(module, call, call.func)


def _by_method(module: Module, call: ast.Call, method: ast.Attribute) -> Iterator[ItemStore]:
    container, arguments = method.value, call.args
    if method.attr in _ONE and len(arguments) == 1:
        yield from _stored(module, call, container, (None,), arguments[0])
    elif method.attr == "insert" and len(arguments) == 2:
        yield from _stored(module, call, container, (None,), arguments[1])
    elif method.attr == "setdefault" and len(arguments) == 2:
        yield from _stored(module, call, container, (key_of(arguments[0]),), arguments[1])
    elif method.attr in _MANY:
        for argument in arguments[:1]:
            yield from _stored(module, call, container, (), argument, is_spread=True)
        for keyword in call.keywords:
            keys = (keyword.arg,) if keyword.arg is not None else ()
            yield from _stored(module, call, container, keys, keyword.value, is_spread=not keys)


def _stored(
    module: Module,
    node: ast.AST,
    container: ast.expr,
    keys: Path,
    value: ast.expr,
    *,
    is_spread: bool = False,
) -> Iterator[ItemStore]:
    while isinstance(container, ast.Subscript):
        keys = (key_of(container.slice), *keys)
        container = container.value
    if isinstance(container, ast.Name | ast.Attribute):
        yield ItemStore(module, node, container, keys, value, is_spread)
