"""What an expression comes to, as far as the code says: followed through names, modules, dicts and calls.

Every value remembers the expression and module it was written in, so that an edit can be made there.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from codemods.analysis.index import Symbol
from codemods.analysis.module import Module


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value is written."""

    module: Module
    node: ast.expr


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant: None, bool, number, string."""

    value: object
    origin: Origin


@dataclass(frozen=True, slots=True)
class Named:
    """A name that stands for itself: a class, a function, an enum member, a torch dtype."""

    symbol: Symbol
    origin: Origin


@dataclass(frozen=True, slots=True)
class CallValue:
    """The result of calling something known; `functools.partial(f, ...)` is a call of partial.

    Attributes:
        arguments: positional arguments, unevaluated.
        keywords: keyword arguments, unevaluated; `**` mappings are in `spreads`.
    """

    function: Symbol
    arguments: tuple[ast.expr, ...]
    keywords: dict[str, ast.expr]
    spreads: tuple[ast.expr, ...]
    origin: Origin


@dataclass(frozen=True, slots=True)
class Sequenced:
    """A tuple, list or set display; elements unevaluated."""

    elements: tuple[ast.expr, ...]
    origin: Origin


@dataclass(frozen=True, slots=True)
class DictValue:
    """A mapping with string keys.

    Attributes:
        items: key -> every expression that can be its value (a later `d["k"] = v` adds one), with its module.
        places: key -> the nodes that write the key: a dict's key, a keyword, a subscript.
        complete: nothing else can have been added.
    """

    items: dict[str, list[Origin]]
    places: dict[str, list[tuple[Module, ast.AST]]]
    complete: bool
    origin: Origin


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several values, decided at run time."""

    options: tuple[Value, ...]
    origin: Origin


@dataclass(frozen=True, slots=True)
class Opaque:
    """Not known, and why."""

    why: str
    origin: Origin


Value: TypeAlias = "Literal | Named | CallValue | Sequenced | DictValue | Choice | Opaque"


def options(value: Value) -> Iterator[Value]:
    """The alternatives of a value, nested choices flattened."""
    if isinstance(value, Choice):
        for option in value.options:
            yield from options(option)
    else:
        yield value


def choice(values: list[Value], origin: Origin) -> Value:
    """One of several values, of which there may be one or none."""
    if len(values) == 1:
        return values[0]
    return Choice(tuple(values), origin) if values else Opaque("nothing is assigned", origin)
