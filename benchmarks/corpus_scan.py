"""Wrap calls and state-dict contexts of a folder, counted without the rewriter's analysis.

Stands on the names that `tests/codemods/leftovers.py` resolves: imports followed by name, nothing else.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import leftovers

FSDP_CLASS = "FullyShardedDataParallel"
_NAMES = re.compile(rb"fsdp|fullysharded|state_dict_type", re.IGNORECASE)
CONTEXTS = frozenset({"state_dict_type", "set_state_dict_type"})


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """The first and last line of a call."""

    path: str
    line: int
    end_line: int

    def is_among(self, lines: set[tuple[str, int]]) -> bool:
        """Whether one of its lines is in the set, or the line above it (a TODO stands there)."""
        return any((self.path, line) in lines for line in range(self.line - 1, self.end_line + 1))


@dataclass(frozen=True, slots=True)
class Surface:
    """Calls of FSDP1's class (also through `partial`), and of its two `state_dict_type` methods."""

    wraps: tuple[Place, ...]
    contexts: tuple[Place, ...]


def scan(folder: Path) -> Surface:
    """The FSDP1 calls of every Python file below a folder that can be parsed."""
    wraps, contexts = [], []
    own = leftovers.own_methods(folder)
    for path, tree, origin in leftovers.resolved(folder, _NAMES):
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            place = Place(path, call.lineno, call.end_lineno or call.lineno)
            if _wraps(call, origin):
                wraps.append(place)
            name = call.func
            if not isinstance(name, ast.Attribute) or name.attr not in CONTEXTS:
                continue
            is_ours = ast.unparse(name.value).endswith(leftovers.HELPER_MODULE)
            if not is_ours and not leftovers.of_plugin(name) and not own.has(path, name):
                contexts.append(place)
    return Surface(tuple(sorted(wraps)), tuple(sorted(contexts)))


def _wraps(call: ast.Call, origin: Callable[[ast.expr], str | None]) -> bool:
    is_partial = ast.unparse(call.func).split(".")[-1] == "partial" and bool(call.args)
    name = origin(call.args[0] if is_partial else call.func) or ""
    return name.startswith(leftovers.FSDP_MODULE) and name.endswith("." + FSDP_CLASS)
