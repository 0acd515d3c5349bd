"""One place where the two stacks part, and what becomes of it."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from codemods.analysis.module import Module
from codemods.model import Edit

DROPPED = "FM120"
KEPT = "FM121"


@dataclass(frozen=True, slots=True)
class Refused:
    """Why FSDP1's part of a place cannot be dropped."""

    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class Spot:
    """One place where the stacks part.

    Attributes:
        node: what is shown to people: the condition.
        outcome: the edits that drop FSDP1's part; none where nothing has to change.
        is_pair: both stacks show here.
    """

    module: Module
    node: ast.AST
    outcome: list[Edit] | Refused
    is_pair: bool = False
