"""Where a new top-level import goes: in its group, in order; in place of one that goes, where a file has no
groups."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable

from codemods.analysis.module import Module
from codemods.editing.spelling import Needed


class ImportGroups:
    """Imports that stand together, by group: future, standard library, third party, the project's, relative.

    Args:
        imports: the leading ones of a file, or some of a function, one below the other.
        indent: what stands before them.
    """

    def __init__(
        self,
        module: Module,
        is_ours: Callable[[str], bool],
        width: int,
        imports: list[ast.Import | ast.ImportFrom],
        indent: str = "",
    ) -> None:
        self._module = module
        self._is_ours = is_ours
        self._width = width - len(indent)
        self._top = imports
        self._indent = indent

    def placed(
        self, needed: list[Needed], freed: list[ast.stmt]
    ) -> tuple[list[tuple[int, int, str]], list[ast.stmt]]:
        """Text changes that add imports, and which of the statements that go (`freed`) they replace."""
        by_source: dict[tuple[str, bool], list[Needed]] = {}
        for wanted in needed:
            by_source.setdefault((wanted.module, bool(wanted.name)), []).append(wanted)
        order = sorted(by_source.items(), key=lambda item: (self._group(item[0][0]), item[0]))
        changes: list[tuple[int, int, str]] = []
        places: list[tuple[ast.stmt, list[tuple[bool, str, str]]]] = []
        home: dict[int, list[tuple[bool, str, str]]] = {}  # of a group whose only import goes
        vacant = [s for s in freed if s in self._top]
        for (source, is_from), names in order:
            line = import_line(source, names, self._width) if is_from else plain_import(names[0])
            entry = (is_from, source.lower(), line)
            group = self._group(source)
            others = {self._group(other) for (other, _), _ in order if other != source}
            fits = bool(vacant) and (
                self._fits(vacant[0], source, is_from=is_from)
                or self._succeeds(vacant[0], source, freed, others)
            )
            if fits:
                places.append((vacant.pop(0), [entry]))
                if self._is_grouped(group):
                    home[group] = places[-1][1]
            elif group in home:
                home[group].append(entry)
            else:
                changes.append(self._inserted(source, line, is_from=is_from, going=freed))
        changes = [(start, end, _shifted(text, self._indent)) for start, end, text in changes]
        changes += [self._at(*place) for place in places]
        return _merged(changes), [place for place, _ in places]

    def together(self, needed: list[Needed]) -> str:
        """Imports one below the other where none stand, with blank lines between the groups."""
        lines: dict[int, list[tuple[bool, str, str]]] = {}
        for source, is_from in dict.fromkeys((item.module, bool(item.name)) for item in needed):
            names = [n for n in needed if n.module == source and bool(n.name) == is_from]
            line = import_line(source, names, self._width) if is_from else plain_import(names[0])
            lines.setdefault(self._group(source), []).append((is_from, source.lower(), line))
        blocks = ["\n".join(line for _, _, line in sorted(found)) for _, found in sorted(lines.items())]
        return _shifted("\n\n".join(blocks), self._indent).removeprefix(self._indent)

    def _at(self, place: ast.stmt, entries: list[tuple[bool, str, str]]) -> tuple[int, int, str]:
        """What takes the place of an import that goes; several where its group has no other."""
        span = self._module.span(place)
        text = _shifted("\n".join(line for _, _, line in sorted(entries)), self._indent)
        return span.start, span.end, text.removeprefix(self._indent)

    def _fits(self, place: ast.stmt, source: str, *, is_from: bool) -> bool:
        """Whether an import may take the place of another: in its own group, or in a file without groups, if
        lines that are in order stay so."""
        assert isinstance(place, ast.Import | ast.ImportFrom)
        if not self._is_grouped(self._group(source)):
            block = next(block for block in self._blocks() if place in block)
            before = [self._order(s) for s in block]
            after = [(is_from, source.lower()) if s is place else self._order(s) for s in block]
            return before != sorted(before) or after == sorted(after)
        return self._group_of(place) == self._group(source) and len(self._in_group(source)) <= 1

    def _succeeds(self, place: ast.stmt, source: str, freed: list[ast.stmt], others: set[int]) -> bool:
        """Whether an import may take the place of a group of which nothing stays, being the next group.

        Args:
            others: groups of the other imports that are added.
        """
        assert isinstance(place, ast.Import | ast.ImportFrom)
        staying = {self._group_of(s) for s in self._top if s not in freed} | others
        old, new = self._group_of(place), self._group(source)
        between = range(min(old, new), max(old, new) + 1)
        return self._is_grouped(old) and staying.isdisjoint(between)

    def _in_group(self, source: str) -> list[ast.Import | ast.ImportFrom]:
        return [s for s in self._top if self._group_of(s) == self._group(source)]

    def _is_grouped(self, own: int) -> bool:
        """Whether blank lines part a group from the others; from all groups, if the file has none of that
        group."""
        pairs = list(zip(self._top, self._top[1:], strict=False))
        borders = [(a, b) for a, b in pairs if (self._group_of(a) == own) != (self._group_of(b) == own)]
        for earlier, later in borders or pairs:
            end, start = self._module.span(earlier).end, self._module.span(later).start
            parted = bool(set("\r\n") & set(self._module.text[self._module.line_end(end) : start]))
            if self._group_of(earlier) != self._group_of(later) and not parted:
                return False
            if self._group_of(earlier) > self._group_of(later):
                return False
        return True

    def _inserted(
        self, source: str, line: str, *, is_from: bool, going: list[ast.stmt]
    ) -> tuple[int, int, str]:
        module, own = self._module, self._group(source)
        usual = [s for s in self._top if self._group_of(s) > 0]
        staying = [s for s in usual if s not in going] or usual
        group = [s for s in usual if self._group_of(s) == own]
        # Where every import of the group goes, the new ones stand where they stood.
        same = [s for s in group if s in staying] or (group if len(group) > 1 else [])
        twins = [s for s in staying if isinstance(s, ast.ImportFrom) and is_from and _source(s) == source]
        if twins:
            end = module.line_end(module.span(twins[-1]).end)
            return end, end, f"{line}\n"
        if not self._is_grouped(own) and staying:
            return self._among(staying, source, line, is_from=is_from)
        if same:
            before = [s for s in same if self._order(s) <= (is_from, source.lower())]
            if before:
                end = module.line_end(module.span(before[-1]).end)
                lead = "" if module.text[:end].endswith(("\n", "\r")) else "\n"
                return end, end, f"{lead}{line}\n"
            start = module.line_start(module.span(same[0]).start)
            return start, start, f"{line}\n"
        earlier = [s for s in usual if self._group_of(s) < own]
        if earlier:
            end = module.line_end(module.span(earlier[-1]).end)
            rest = module.text[end:].lstrip(" \t")
            return end, end, f"\n{line}\n" if not rest or rest.startswith(("\n", "\r")) else f"\n{line}\n\n"
        if usual:
            start = module.line_start(module.span(usual[0]).start)
            return start, start, f"{line}\n\n"
        return self._first(line)

    def _among(
        self, staying: list[ast.Import | ast.ImportFrom], source: str, line: str, *, is_from: bool
    ) -> tuple[int, int, str]:
        """Where blank lines part no groups: in order, where the lines around it have one, or else behind the
        last of its group."""
        module, own = self._module, self._group(source)
        last = ([s for s in staying if self._group_of(s) <= own] or staying[:1])[-1]
        block = next(block for block in self._blocks() if last in block)
        orders = [self._order(s) for s in block]
        if orders == sorted(orders):
            kept = [s for s in block if s in staying]
            before = [s for s in kept if self._order(s) <= (is_from, source.lower())]
            if not before:
                start = module.line_start(module.span(kept[0]).start)
                return start, start, f"{line}\n"
            last = before[-1]
        end = module.line_end(module.span(last).end)
        return end, end, f"{line}\n"

    def _blocks(self) -> list[list[ast.Import | ast.ImportFrom]]:
        """The imports that no blank line, and nothing else, parts."""
        module = self._module
        blocks: list[list[ast.Import | ast.ImportFrom]] = []
        for statement in self._top:
            start = module.line_start(module.span(statement).start)
            if blocks and module.line_end(module.span(blocks[-1][-1]).end) == start:
                blocks[-1].append(statement)
            else:
                blocks.append([statement])
        return blocks

    def _first(self, line: str) -> tuple[int, int, str]:
        """After the docstring and `__future__` imports of a file that has no other import."""
        end = 0
        for statement in self._module.tree.body:
            if is_docstring(statement) or (
                isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
            ):
                end = self._module.line_end(self._module.span(statement).end)
            else:
                break
        return end, end, f"\n{line}\n" if end else f"{line}\n\n"

    def _group(self, source: str) -> int:
        if source.startswith("."):
            return 4
        head = source.split(".")[0]
        if head == "__future__":
            return 0
        if head in sys.stdlib_module_names:
            return 1
        return 3 if self._is_ours(source) or self._is_ours(head) else 2

    def _group_of(self, statement: ast.Import | ast.ImportFrom) -> int:
        return self._group(_source(statement))

    def _order(self, statement: ast.Import | ast.ImportFrom) -> tuple[bool, str]:
        return isinstance(statement, ast.ImportFrom), _source(statement).lower()


def leading_imports(module: Module) -> list[ast.Import | ast.ImportFrom]:
    """The imports of a file above its first function or class."""
    found: list[ast.Import | ast.ImportFrom] = []
    for statement in module.tree.body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            found.append(statement)
        elif isinstance(statement, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            break
    return found


def _shifted(text: str, indent: str) -> str:
    return re.sub(r"(?m)^(?=.)", indent, text)


def is_docstring(statement: ast.stmt) -> bool:
    """Whether a statement is a text, or another value, by itself."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _source(statement: ast.Import | ast.ImportFrom) -> str:
    if isinstance(statement, ast.Import):
        return statement.names[0].name
    return "." * statement.level + (statement.module or "")


def _merged(changes: list[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
    """Insertions at one position become one, in order, with the blank lines around them once."""
    merged: dict[tuple[int, int], str] = {}
    for start, end, text in changes:
        if (start, end) in merged:
            earlier = merged[start, end]
            if earlier.startswith("\n") and text.startswith("\n"):
                merged[start, end] = earlier.rstrip("\n") + "\n" + text.lstrip("\n")
            elif earlier.endswith("\n\n") and not text.startswith("\n"):
                merged[start, end] = earlier[:-1] + text
            else:
                merged[start, end] = earlier + text
        else:
            merged[start, end] = text
    return [(start, end, text) for (start, end), text in merged.items()]


def import_order(name: str) -> tuple[int, str]:
    """isort's and ruff's default order within a statement: CONSTANTS, Classes, the rest."""
    if name.isupper() and len(name) > 1:
        return 0, name
    return (1 if name[:1].isupper() else 2), name


def import_line(source: str, needed: list[Needed], width: int) -> str:
    """`from source import a, b`, over several lines where it is long; each `a as b` has a line of its own."""
    names = sorted((n.name for n in needed if not n.alias), key=import_order)
    statements = [(import_order(names[0]), names)] if names else []
    statements += [(import_order(n.name), [f"{n.name} as {n.alias}"]) for n in needed if n.alias]
    return "\n".join(_statement(source, shown, width) for _, shown in sorted(statements))


def _statement(source: str, shown: list[str], width: int) -> str:
    line = f"from {source} import {', '.join(shown)}"
    if len(line) <= width:
        return line
    return f"from {source} import (\n" + "".join(f"    {name},\n" for name in shown) + ")"


def plain_import(wanted: Needed) -> str:
    """`import module as alias`."""
    return f"import {wanted.module} as {wanted.alias}" if wanted.alias else f"import {wanted.module}"
