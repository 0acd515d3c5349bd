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
        kind: `call`: FSDP(m); `partial`: functools.partial(FSDP, ...); `wrap`: wrap(m) within enable_wrap.
        block: the innermost `with enable_wrap(...)` around a wrap(m) in the same function.
    """

    module: Module
    node: ast.Call
    kind: str = "call"
    block: ast.With | None = None

    @property
    def settings(self) -> ast.Call:
        """The call that holds the keywords: the constructor's, or that of `enable_wrap` around a `wrap`."""
        item = self.block.items[0].context_expr if self.block is not None else None
        return item if isinstance(item, ast.Call) else self.node

    @property
    def function(self) -> ast.expr:
        """The expression that names the constructor."""
        return self.node.args[0] if self.kind == "partial" else self.node.func

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
    """An object of a class of the project."""

    node: ast.ClassDef
    module: Module


class Other:
    """Something that is not a sharded model, or is not known."""


class Declared:
    """Said to be a sharded model, by an annotation or by a call of one of FSDP1's static methods on it."""


OTHER = Other()
DECLARED = Declared()


@dataclass(frozen=True, slots=True)
class OptimizerCall:
    """An optimizer over the parameters of what these expressions hold."""

    node: ast.Call
    module: Module


Held: TypeAlias = "WrapCall | Instance | OptimizerCall | Other | Declared"
HeldSet: TypeAlias = "frozenset[Held]"
