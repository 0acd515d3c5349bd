"""One parsed file: its tree, scopes, and the way from tree positions to text positions."""

from __future__ import annotations

import ast
import bisect
import re
import sys
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TypeVar, cast

from codemods.analysis.scopes import Binding, Scope
from codemods.analysis.strings_in_strings import mend_positions
from codemods.analysis.table import ScopeTable
from codemods.model import Place, Span
from codemods.sources import SourceFile

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_Node = TypeVar("_Node", bound=ast.AST)
_LINE_END = re.compile(r"\r\n|\r|\n")


class Module:
    """One parsed file: its tree, scopes, and the way from tree positions to text positions."""

    def __init__(self, source: SourceFile) -> None:
        """Parse.

        Raises:
            SyntaxError, ValueError, RecursionError: Python cannot parse the file.
        """
        self.source = source
        self.path = source.path
        self.text = source.text
        self.tree = ast.parse(source.text, filename=source.path)
        self.table = ScopeTable()
        self.table.build(self.tree)
        self._named: dict[str, list[ast.Name | ast.Attribute]] | None = None
        self._ordered: dict[str, list[ast.Name | ast.Attribute]] = {}
        self._lines: list[str] | None = None
        self._by_line: dict[type[ast.AST], tuple[list[int], list[ast.AST]]] = {}
        self._results: dict[ast.AST, tuple[list[ast.expr], list[ast.expr]]] | None = None
        self.flows: dict[tuple[Scope, str], dict[ast.stmt, frozenset[Binding]]] = {}
        if sys.version_info < (3, 12):
            for string in self.nodes(ast.JoinedStr):
                assert isinstance(string, ast.JoinedStr)
                if not self._is_in_string(string):
                    mend_positions(self, string)

    def _is_in_string(self, node: ast.AST) -> bool:
        for parent in self.ancestors(node):
            if isinstance(parent, ast.JoinedStr | ast.stmt):
                return isinstance(parent, ast.JoinedStr)
        return False

    def nodes(self, kind: type[ast.AST]) -> list[ast.AST]:
        """All nodes of exactly that type, in the order of the tree walk."""
        return self.table.nodes.get(kind, [])

    def within(self, block: ast.stmt | ast.Module, kind: type[_Node]) -> list[_Node]:
        """All statements or expressions of exactly that type in a class, function or other statement that has
        its lines for itself, in the order of the text."""
        if kind not in self._by_line:
            ordered = sorted(self.nodes(kind), key=_start)
            self._by_line[kind] = [node.lineno for node in ordered], ordered  # type: ignore[attr-defined]
        lines, nodes = self._by_line[kind]
        if not isinstance(block, ast.Module):
            first = bisect.bisect_left(lines, _first_line(block))
            nodes = nodes[first : bisect.bisect_right(lines, block.end_lineno or 0)]
        return cast("list[_Node]", nodes)

    @cached_property
    def _line_starts(self) -> list[int]:
        return [0, *(m.end() for m in _LINE_END.finditer(self.text))]

    @cached_property
    def says_fsdp(self) -> bool:
        """Whether the file says FSDP anywhere."""
        return "fsdp" in self.text.lower()

    def named(self, *words: str) -> list[ast.Name | ast.Attribute]:
        """Every use of these names and every attribute of these names, in the order of the text."""
        if len(words) == 1:
            return self._in_order(words[0])
        found = [node for word in words for node in self._by_word().get(word, ())]
        return sorted(found, key=_end) if len(found) > 1 else found

    def _in_order(self, word: str) -> list[ast.Name | ast.Attribute]:
        """Every use of one name; many are asked for often."""
        found = self._ordered.get(word)
        if found is None:
            uses = self._by_word().get(word)
            if uses is None:
                return []
            found = self._ordered[word] = sorted(uses, key=_end)
        return found

    def attributes(self, *words: str) -> list[ast.Attribute]:
        """Every attribute of these names, in the order of the text, the outer ones of a chain first."""
        found = [n for word in words for n in self._by_word().get(word, ()) if isinstance(n, ast.Attribute)]
        return sorted(
            found, key=lambda n: (n.lineno, n.col_offset, -(n.end_lineno or 0), -(n.end_col_offset or 0))
        )

    def words(self) -> set[str]:
        """Every name that is used; attributes do not count."""
        return {word for word, nodes in self._by_word().items() if isinstance(nodes[0], ast.Name)}

    def attributes_and_names(self) -> Iterable[str]:
        """Every name and attribute that is used."""
        return self._by_word().keys()

    def _by_word(self) -> dict[str, list[ast.Name | ast.Attribute]]:
        if self._named is None:
            self._named = {}
            for name in self.table.nodes[ast.Name]:
                self._named.setdefault(name.id, []).append(name)  # type: ignore[attr-defined, arg-type]
            for attribute in self.table.nodes[ast.Attribute]:
                self._named.setdefault(attribute.attr, []).append(attribute)  # type: ignore[attr-defined, arg-type]
        return self._named

    def called(self, word: str) -> Iterator[ast.Call]:
        """Every call of a function or method of that name."""
        for node in self.named(word):
            parent = self.table.parents.get(node)
            if isinstance(parent, ast.Call) and parent.func is node:
                yield parent

    def scopes(self) -> list[Scope]:
        """Every scope of the module."""
        return list(self.table.scopes.values())

    def statements(self) -> Iterator[ast.stmt]:
        """Every statement."""
        for kind, nodes in self.table.nodes.items():
            if issubclass(kind, ast.stmt):
                for node in nodes:
                    assert isinstance(node, ast.stmt)
                    yield node

    def statement_at(self, span: Span) -> ast.stmt | None:
        """The innermost statement around a span of text."""
        best: tuple[int, ast.stmt] | None = None
        first, last = self.line_of(span.start), self.line_of(span.end)
        for node in self.statements():
            if node.end_lineno is None or node.end_lineno < last or _first_line(node) > first:
                continue
            at = self.span(node)
            if at.holds(span) and (best is None or at.end - at.start <= best[0]):
                best = (at.end - at.start, node)
        return best[1] if best else None

    def calls(self) -> list[ast.Call]:
        """Every call."""
        return cast("list[ast.Call]", self.nodes(ast.Call))

    @property
    def scope(self) -> Scope:
        """The module's own scope."""
        return self.table.scopes[self.tree]

    def offset(self, line: int, byte_column: int) -> int:
        """Text position of a tree position (`ast` counts columns in UTF-8 bytes)."""
        start = self._line_starts[line - 1]
        prefix = self.text[start : start + byte_column]
        if prefix.isascii():
            return start + byte_column
        end = self._line_starts[line] if line < len(self._line_starts) else len(self.text)
        return start + len(self.text[start:end].encode()[:byte_column].decode())

    def span(self, node: ast.AST) -> Span:
        """Where a statement or expression stands, decorators included, surrounding parentheses not."""
        assert isinstance(node, ast.stmt | ast.expr | ast.keyword | ast.arg | ast.alias | ast.ExceptHandler)
        line, column = node.lineno, node.col_offset
        decorators = getattr(node, "decorator_list", None)
        if decorators:
            start = self.offset(decorators[0].lineno, decorators[0].col_offset)
            start = self.text.rindex("@", 0, start)
        else:
            start = self.offset(line, column)
        assert node.end_lineno is not None and node.end_col_offset is not None
        return Span(start, self.offset(node.end_lineno, node.end_col_offset))

    def code(self, node: ast.AST) -> str:
        """The source text of a node."""
        span = self.span(node)
        return self.text[span.start : span.end]

    @property
    def lines(self) -> list[str]:
        """The lines as Python counts them, without their endings: a form feed ends none."""
        if self._lines is None:
            self._lines = _LINE_END.split(self.text)
        return self._lines

    def line_of(self, position: int) -> int:
        """Line number, from 1, of a text position."""
        return bisect.bisect_right(self._line_starts, position)

    def line_start(self, position: int) -> int:
        """Position of the first character of the line of a position."""
        return self._line_starts[self.line_of(position) - 1]

    def line_end(self, position: int) -> int:
        """Position just after the line ending of the line of a position."""
        line = self.line_of(position)
        return self._line_starts[line] if line < len(self._line_starts) else len(self.text)

    def place(self, node: ast.AST) -> Place:
        """Where a node stands, for people and for edits."""
        return self.place_of(self.span(node))

    def place_of(self, span: Span) -> Place:
        """Where some text stands."""
        return Place(self.path, self.line_of(span.start), span.start - self.line_start(span.start) + 1, span)

    def parent(self, node: ast.AST) -> ast.AST | None:
        return self.table.parents.get(node)

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """Parents, innermost first."""
        current = self.table.parents.get(node)
        while current is not None:
            yield current
            current = self.table.parents.get(current)

    def statement(self, node: ast.AST) -> ast.stmt:
        """The innermost statement that holds an expression; the node itself if it is a statement."""
        current: ast.AST | None = node
        while current is not None and not isinstance(current, ast.stmt):
            current = self.table.parents.get(current)
        assert current is not None, "expression outside any statement"
        return current

    def block(self, statement: ast.AST) -> list[ast.stmt]:
        """The statements among which one stands, or the handlers of a `try`."""
        parent = self.table.parents.get(statement)
        for name in ("body", "orelse", "finalbody", "handlers"):
            block = getattr(parent, name, None)
            if isinstance(block, list) and statement in block:
                return block
        return []

    def function(self, node: ast.AST) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        """The innermost `def` around a node."""
        parents = self.table.parents  # asked very often: no generator, no union of types made for each step
        current = parents.get(node)
        while current is not None and not isinstance(current, _FUNCTIONS):
            current = parents.get(current)
        return current

    def results(self, function: ast.AST) -> tuple[list[ast.expr], list[ast.expr]]:
        """The expressions a function returns and those it yields, its inner functions' left out."""
        if self._results is None:
            self._results = {}
            for position, kinds in enumerate(((ast.Return,), (ast.Yield, ast.YieldFrom))):
                for node in (n for kind in kinds for n in self.nodes(kind)):
                    assert isinstance(node, ast.Return | ast.Yield | ast.YieldFrom)
                    owner = self.function(node)
                    if node.value is not None and owner is not None:
                        self._results.setdefault(owner, ([], []))[position].append(node.value)
        return self._results.get(function, ([], []))

    def class_of(self, node: ast.AST) -> ast.ClassDef | None:
        """The innermost class around a node, whatever functions lie between."""
        parents = self.table.parents
        current = parents.get(node)
        while current is not None and not isinstance(current, ast.ClassDef):
            current = parents.get(current)
        return current

    def scope_of(self, node: ast.AST) -> Scope:
        """The scope in which an expression looks up its names."""
        return self.table.homes[node]


def last_name(node: ast.AST | None) -> str:
    """`c` of `a.b.c` and of `c`; nothing of anything else."""
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


def is_own(node: ast.AST) -> bool:
    """Whether it is an attribute of `self`, read or written: `self.x`."""
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"


def _first_line(node: ast.stmt) -> int:
    decorators = getattr(node, "decorator_list", None)
    return decorators[0].lineno if decorators else node.lineno


def _start(node: ast.AST) -> tuple[int, int]:
    return node.lineno, node.col_offset  # type: ignore[attr-defined]


def _end(node: ast.expr) -> tuple[int, int]:
    return node.end_lineno or 0, node.end_col_offset or 0
