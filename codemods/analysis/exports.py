"""Which names of a file other files take from it, through re-exports and star imports too."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from codemods.analysis.index import Index
from codemods.analysis.module import Module


@dataclass(frozen=True, slots=True)
class _Taken:
    """`from holder import name as local` in `taker`; the name is `*` for everything."""

    taker: Module
    holder: str
    name: str
    local: str


def names_taken(
    modules: Iterable[Module],
    index: Index,
    reads: Callable[[Module], set[str]],
    goes_unread: Callable[[Module, str], bool] = lambda module, name: False,
) -> set[tuple[str, str]]:
    """(file, name) of every name that another file imports from that file, and keeps.

    A star import takes the names that its file reads, and those that are taken from it in turn.

    Args:
        reads: the names that a file reads.
        goes_unread: whether a file's import of a name goes when nothing in it reads the name.
    """
    modules = list(modules)
    words = {module.path: reads(module) for module in modules}
    imports = [taken for module in modules for taken in _imports(module, index)]
    found: dict[str, set[str]] = defaultdict(set)
    grown = True
    while grown:
        size = sum(map(len, found.values()))
        for taken in imports:
            path = taken.taker.path
            if taken.name == "*":
                found[taken.holder] |= words[path] | found[path]
            elif (
                taken.local in words[path]
                or taken.local in found[path]
                or not goes_unread(taken.taker, taken.local)
            ):
                found[taken.holder].add(taken.name)
        grown = sum(map(len, found.values())) > size
    return {(path, name) for path, names in found.items() for name in names}


def _imports(module: Module, index: Index) -> list[_Taken]:
    found: list[_Taken] = []
    for node in module.nodes(ast.ImportFrom):
        assert isinstance(node, ast.ImportFrom)
        holder = index.find("." * node.level + (node.module or ""), module.path)
        if holder is not None and holder is not module:
            found += [_Taken(module, holder.path, a.name, a.asname or a.name) for a in node.names]
    return found
