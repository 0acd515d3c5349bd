"""What an expression can hold, as far as sharding is concerned."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TypeAlias

from codemods.analysis.module import Module


@dataclass(frozen=True, slots=True, eq=False)
class WrapCall:
    """A call that makes, or will make, an FSDP1 wrapper.

    Attributes:
        kind: `call`: FSDP(m); `partial`: functools.partial(FSDP, ...); `wrap`: wrap(m) within enable_wrap;
            `block`: an `enable_wrap(wrapper_cls=FSDP, ...)` that is looked at by itself; `choice`:
            (FSDP if distributed else Plain)(m).
        block: the innermost `with enable_wrap(...)` around a wrap(m) in the same function.
        named: of a choice, where FSDP1's class is named in it.
    """

    module: Module
    node: ast.Call
    kind: str = "call"
    block: ast.With | None = None
    named: ast.expr | None = None

    @property
    def other(self) -> ast.expr | None:
        """Of a choice, the class that is taken in the place of FSDP1's."""
        if not isinstance(self.node.func, ast.IfExp):
            return None
        return self.node.func.orelse if self.node.func.body is self.named else self.node.func.body

    @property
    def settings(self) -> ast.Call:
        """The call that holds the keywords: the constructor's, or that of `enable_wrap` around a `wrap`."""
        item = self.block.items[0].context_expr if self.block is not None else None
        return item if isinstance(item, ast.Call) else self.node

    @property
    def function(self) -> ast.expr:
        """The expression that names the constructor."""
        return self.named or (self.node.args[0] if self.kind == "partial" else self.node.func)

    @property
    def arguments(self) -> list[ast.expr]:
        """Positional arguments of the constructor, the module first."""
        return self.node.args[1:] if self.kind == "partial" else self.node.args

    @property
    def wrapped(self) -> ast.expr | None:
        """The module argument."""
        for keyword in self.node.keywords:
            if keyword.arg == "module":
                return keyword.value
        return self.arguments[0] if self.arguments else None


@dataclass(frozen=True, slots=True)
class Sharded:
    """Always a sharded model; the wrap calls it can come from (none where only an annotation says so)."""

    sites: frozenset[WrapCall]


@dataclass(frozen=True, slots=True)
class Maybe:
    """A sharded model on some paths, something else or unknown on others."""

    sites: frozenset[WrapCall]


@dataclass(frozen=True, slots=True)
class No:
    """Nothing says that it is a sharded model."""


Holding: TypeAlias = "Sharded | Maybe | No"


@dataclass(frozen=True, slots=True)
class Instance:
    """An object of a class of the project.

    Attributes:
        is_exact: of that class itself; False for `self` and annotations, which heirs can stand for.
        within: the method whose `self` it is: heirs that have another in its place do not run it.
    """

    node: ast.ClassDef
    module: Module
    is_exact: bool = True
    within: ast.FunctionDef | ast.AsyncFunctionDef | None = None


@dataclass(frozen=True, slots=True)
class Defined:
    """A function or class of the project itself, not what it makes."""

    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef
    module: Module


@dataclass(frozen=True, slots=True)
class Record:
    """What `SimpleNamespace(...)` or the class of a `collections.namedtuple` makes.

    Attributes:
        node: the call that makes it.
        fields: names by position; none for a namespace.
    """

    node: ast.Call
    module: Module
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Part:
    """A module inside a sharded model, as `modules()` and `children()` give it."""

    site: WrapCall | None


class Other:
    """Something that is not a sharded model."""


class Unseen(Other):
    """Where it comes from was not found."""


class Modules(Other):
    """A container of modules that is a module itself.

    Attributes:
        node: the call that makes it.
    """

    def __init__(self, node: ast.Call, module: Module) -> None:
        self.node, self.module = node, module


class Possible(Other):
    """A model that a library may shard: that is decided when the program runs."""


class Prepared(Other):
    """An optimizer that a library gives back, of a model that it shards.

    Attributes:
        is_certain: not where the program decides whether FSDP is used at all.
    """

    def __init__(self, *, is_certain: bool) -> None:
        self.is_certain = is_certain


class Declared:
    """Said to be a sharded model, by an annotation or by a call of one of FSDP1's static methods on it."""


OTHER = Other()
UNSEEN = Unseen()
POSSIBLE = Possible()
DECLARED = Declared()
PREPARED = Prepared(is_certain=True)
POSSIBLY_PREPARED = Prepared(is_certain=False)


@dataclass(frozen=True, slots=True)
class OptimizerCall:
    """An optimizer over the parameters of what these expressions hold."""

    node: ast.Call
    module: Module


NO_MODEL = (Other, Instance, Defined, Record, Part)
"""What is no sharded model."""
Held: TypeAlias = "WrapCall | Instance | Defined | Record | Part | OptimizerCall | Other | Declared"
HeldSet: TypeAlias = "frozenset[Held]"
NOTHING: HeldSet = frozenset()

Key: TypeAlias = "int | str | None"
"""A position, a key of a mapping, or None for any element."""
Path: TypeAlias = "tuple[Key, ...]"
"""From a container to something in it: `x["a"][0]` is at ("a", 0) of x."""


def in_order(held: HeldSet) -> list[Instance | Defined]:
    """The objects and definitions of the project among what is held, in the order of files and lines: a set's
    own order is another in each run."""
    return sorted((one for one in held if isinstance(one, Instance | Defined)), key=_place)


def _place(held: Instance | Defined) -> tuple[str, int, bool, int]:
    within = held.within if isinstance(held, Instance) else None
    is_exact = isinstance(held, Instance) and held.is_exact
    return held.module.path, held.node.lineno, is_exact, within.lineno if within is not None else 0


def can_be(one: Key, other: Key) -> bool:
    """Whether two keys can be the same: a negative position counts from an end that is not known."""
    if one is None or other is None or one == other:
        return True
    return isinstance(one, int) and isinstance(other, int) and (one < 0) != (other < 0)


def key_of(node: ast.expr) -> Key:
    """The key that a subscript's expression is; None where it is not written out."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int | str):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = key_of(node.operand)
        return -inner if isinstance(inner, int) else None
    return None
