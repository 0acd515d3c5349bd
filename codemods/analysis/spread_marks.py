"""What is followed forwards from where sharded models are made."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from codemods.analysis.module import Module

MODEL = "a sharded model or a part of one"
SAID = "said to be a sharded model at this place"
PARAMETERS = "parameters of a sharded model"
OPTIMIZER = "an optimizer of such parameters"
RECORD = "a namespace or named tuple"
INSIDE = frozenset({"module", "_fsdp_wrapped_module", "_orig_mod"})
"""What a wrapper or a compiled module calls the module inside it."""


@dataclass(frozen=True, slots=True, eq=False)
class Family:
    """Classes of which one derives from another, at whatever distance and in whatever direction."""

    classes: list[tuple[ast.ClassDef, Module]]


Mark: TypeAlias = "str | Family | ast.AST"
Taker: TypeAlias = "Callable[[Mark], None]"


@dataclass(slots=True)
class Cell:
    """A variable, an attribute or what a function gives: marks, in the order they came, and who takes them.

    Which families are told apart depends on that order, and it is to be the same in every run.
    """

    marks: dict[Mark, None] = field(default_factory=dict)
    takers: list[Taker] = field(default_factory=list)

    def put(self, mark: Mark) -> None:
        """Say that a mark arrives."""
        if mark not in self.marks:
            self.marks[mark] = None
            for taker in list(self.takers):
                taker(mark)

    def take(self, taker: Taker) -> None:
        """Hand on what has arrived, and what will."""
        self.takers.append(taker)
        for mark in list(self.marks):
            taker(mark)
