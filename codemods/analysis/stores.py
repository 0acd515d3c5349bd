"""Where attributes and items are put: `x.name = v`, `c[k] = v`, `c.append(v)`, by the last name written."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from codemods.analysis.holding import Path, key_of
from codemods.analysis.module import Module
from codemods.analysis.shelf import Before, Shelf

ONE = frozenset({"append", "add", "appendleft"})
MANY = frozenset({"extend", "update", "extendleft"})
FILLS = ONE | MANY | {"insert", "setdefault"}
"""Methods that put their arguments into a container."""


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
    """Every store of the project, found in one walk of each module that can hold one."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._attributes: dict[Module, dict[str, list[AttributeStore]]] = {}
        self._items: dict[Module, dict[str, list[ItemStore]]] = {}
        self._known: dict[tuple[str, frozenset[str], str], list[str]] = {}

    def here(self, module: Module, name: str) -> list[AttributeStore]:
        """Every assignment to an attribute of that name in one module."""
        if module not in self._attributes:
            found: dict[str, list[AttributeStore]] = {}
            for store in _attribute_stores(module):
                found.setdefault(_name_of(store.target), []).append(store)
            self._attributes[module] = found
        return self._attributes[module].get(name, [])

    def attributes(self, name: str, homes: Iterable[Module] = ()) -> Iterator[AttributeStore]:
        """Every assignment to an attribute of that name of anything but `self` and `cls`; in the homes of
        those too.

        Args:
            homes: the modules of the classes whose objects are meant; whatever is known if none.
        """
        for module in self._shelf.load(self._paths(name, homes, self._storing)):
            yield from self.here(module, name)

    def _paths(self, name: str, homes: Iterable[Module], others: Callable[[str], Iterable[str]]) -> list[str]:
        """The homes of classes, and those of some other files to which their objects can get."""
        own = frozenset(home.path for home in homes)
        key = name, own, others.__name__
        if key not in self._known:
            far = set(others(name))
            if own:
                far = self._shelf.together(*own).among(far)
            self._known[key] = sorted(own | far)
        return self._known[key]

    def _storing(self, name: str) -> set[str]:
        where = self._shelf.where
        return {
            *where(name, rb"\s*(?::[^=\n]*)?=(?!=)", Before.ANOTHER),
            *where(name, _LISTED + rb"[)\]]?[ \t]*=(?!=)", Before.ANOTHER, _LINE + _LISTED),
            *where(name, rb"[^=()]*[)\]]\s*=(?!=)", Before.ANOTHER, rb"(?:^|\n)[ \t]*[(\[][^=()]*"),
            *where(name, rb"[\'\"]", before=rb"\bsetattr\s*\([^\'\"]*[\'\"]"),
        }

    def items_here(self, module: Module, name: str) -> list[ItemStore]:
        """Everything that one module puts into containers that a variable or attribute of that name holds."""
        if module not in self._items:
            found: dict[str, list[ItemStore]] = {}
            for item in _item_stores(module):
                container = item.container
                word = container.id if isinstance(container, ast.Name) else container.attr
                found.setdefault(word, []).append(item)
            self._items[module] = found
        return self._items[module].get(name, [])

    def items_of_variable(self, module: Module, name: str, *, is_global: bool) -> Iterator[ItemStore]:
        """What may be put into a variable of a module, by other modules too where it is a global one."""
        if not is_global:
            yield from self.items_here(module, name)
            return
        paths = self._shelf.users(module.path).among(self._shelf.where(name, _FILLING))
        for home in self._shelf.load(sorted({module.path, *paths})):
            yield from self.items_here(home, name)

    def items_of_attribute(self, name: str, homes: Iterable[Module]) -> Iterator[ItemStore]:
        """What is put into an attribute of that name of anything but `self` and `cls`; in the homes of those
        too."""
        others = self._shelf.where(name, _FILLING, Before.ANOTHER)
        for module in self._shelf.load(sorted({home.path for home in homes}.union(others))):
            yield from self.items_here(module, name)


_LINE = rb"(?:^|\n)[ \t]*[(\[]?"
_LISTED = rb"[\w.,\[\]\'\" \t*]*"
"""Targets of an assignment in one line."""
_FILLING = rb"\s*\)*\s*(?:\[|[-+*/|&^%@]{1,2}=|\.\s*(?:" + (
    b"|".join(word.encode() for word in sorted(FILLS)) + rb")\b)"
)
"""Behind the name of a container: something is put into it."""


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
    if method.attr in ONE and len(arguments) == 1:
        yield from _stored(module, call, container, (None,), arguments[0])
    elif method.attr == "insert" and len(arguments) == 2:
        yield from _stored(module, call, container, (None,), arguments[1])
    elif method.attr == "setdefault" and len(arguments) == 2:
        yield from _stored(module, call, container, (key_of(arguments[0]),), arguments[1])
    elif method.attr in MANY:
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
