"""One parsed file: its tree, scopes, and the way from tree positions to text positions."""

from __future__ import annotations

import ast
import bisect
import re
from collections.abc import Iterator

from codemods.analysis.scopes import Scope
from codemods.analysis.table import ScopeTable
from codemods.model import Place, Span
from codemods.sources import SourceFile

_LINE_END = re.compile(r"\r\n|\r|\n")
_OUTWARD = re.compile(r"\b(?:global|nonlocal)\b")
_KEYWORDS = {
    ast.Import: re.compile(r"\bimport\b"),
    ast.ImportFrom: re.compile(r"\bimport\b"),
    ast.With: re.compile(r"\bwith\b"),
    ast.If: re.compile(r"\bif\b|\belif\b"),
    ast.For: re.compile(r"\bfor\b"),
    ast.comprehension: re.compile(r"\bfor\b"),
}
"""Kinds of nodes that stand only where a keyword stands."""


class Module:
    """One parsed file: its tree, scopes, and the way from tree positions to text positions.

    Functions are looked into when something asks about them (`codemods.analysis.table`): `named` and
    `nodes` open those whose text can hold what is asked for, a node's own fields and ancestors are there
    always.
    """

    def __init__(self, source: SourceFile, *, keep: bool = True) -> None:
        """Parse.

        Args:
            keep: whether functions that nobody looks into stay in memory, or are parsed again if someone
                does.

        Raises:
            SyntaxError, ValueError, RecursionError: Python cannot parse the file.
        """
        self.source = source
        self.path = source.path
        self.text = source.text
        self.tree = ast.parse(source.text, filename=source.path)
        self._line_starts = [0, *(m.end() for m in _LINE_END.finditer(source.text))]
        self.table = ScopeTable(self._parsed_again)
        self.table.build(self.tree, keep=keep)
        self._named: dict[str, list[ast.Name | ast.Attribute]] = {}
        self._indexed = [0, 0]
        self._sorted: dict[type, list[ast.AST]] = {}
        if _OUTWARD.search(self.text):
            self._open(_OUTWARD)  # what they bind belongs to the scopes outside

    def nodes(self, kind: type[ast.AST]) -> list[ast.AST]:
        """All nodes of exactly that type, in the order of the text.

        Costs little for imports, `with`, `if` and loops; for a name or attribute ask `named`.
        """
        self._open(_KEYWORDS.get(kind))
        found = self.table.nodes.get(kind, [])
        known = self._sorted.get(kind)
        if known is None or len(known) != len(found):
            known = self._sorted[kind] = sorted(found, key=_position)
        return known

    def named(self, word: str) -> list[ast.Name | ast.Attribute]:
        """Every use of a name, and every attribute of that name, in the order of the text."""
        if word not in self.text:
            return []
        if self.table.closed:
            self._open(re.compile(rf"\b{re.escape(word)}\b"))
        self._index()
        return sorted(self._named.get(word, ()), key=_end_position)

    def called(self, word: str) -> Iterator[ast.Call]:
        """Every call of a function or method of that name."""
        for node in self.named(word):
            parent = self.table.parents.get(node)
            if isinstance(parent, ast.Call) and parent.func is node:
                yield parent

    def scopes(self) -> list[Scope]:
        """Every scope of the module."""
        self._open(None)
        return list(self.table.scopes.values())

    def seen_scopes(self) -> list[Scope]:
        """The scopes of the module, its classes, and the functions looked into so far."""
        return list(self.table.scopes.values())

    def open_where(self, pattern: re.Pattern[str]) -> None:
        """Look into every function in whose text a pattern is found."""
        self._open(pattern)

    def _open(self, pattern: re.Pattern[str] | None) -> None:
        """Open the functions in whose text a pattern is found; all for None."""
        closed = list(self.table.closed)
        if not closed:
            return
        if pattern is None:
            for function in closed:
                self.table.open(function)
            return
        ends = [function.end_lineno or 0 for function in closed]
        wanted: dict[ast.FunctionDef | ast.AsyncFunctionDef, None] = {}
        for match in pattern.finditer(self.text):
            line = self.line_of(match.start())
            at = bisect.bisect_left(ends, line)
            if at < len(closed) and closed[at].lineno <= line:
                wanted[closed[at]] = None
        for function in wanted:
            self.table.open(function)

    def _parsed_again(
        self, function: ast.FunctionDef | ast.AsyncFunctionDef
    ) -> ast.FunctionDef | ast.AsyncFunctionDef:
        """A function from the text, every node with the position it has in the file."""
        start, end = self._line_starts[function.lineno - 1], self.span(function).end
        is_inner = function.col_offset > 0
        above = "\n" * (function.lineno - 2) + "if 1:\n" if is_inner else "\n" * (function.lineno - 1)
        found = ast.parse(above + self.text[start:end]).body[0]
        if isinstance(found, ast.If):
            found = found.body[0]
        assert isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef)
        return found

    def _index(self) -> None:
        """Sort the names and attributes that were looked at since the last time by their word."""
        names, attributes = self.table.nodes[ast.Name], self.table.nodes[ast.Attribute]
        if self._indexed == [len(names), len(attributes)]:
            return
        by_word = self._named
        for node in names[self._indexed[0] :]:
            by_word.setdefault(node.id, []).append(node)  # type: ignore[attr-defined, arg-type]
        for node in attributes[self._indexed[1] :]:
            by_word.setdefault(node.attr, []).append(node)  # type: ignore[attr-defined, arg-type]
        self._indexed = [len(names), len(attributes)]

    def statements(self) -> Iterator[ast.stmt]:
        """Every statement."""
        self._open(None)
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

    def calls(self) -> Iterator[ast.Call]:
        """Every call."""
        for node in self.nodes(ast.Call):
            assert isinstance(node, ast.Call)
            yield node

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
        span = self.span(node)
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

    def function(self, node: ast.AST) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        """The innermost `def` around a node."""
        for parent in self.ancestors(node):
            if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef):
                return parent
        return None

    def class_of(self, node: ast.AST) -> ast.ClassDef | None:
        """The innermost class around a node, whatever functions lie between."""
        for parent in self.ancestors(node):
            if isinstance(parent, ast.ClassDef):
                return parent
        return None

    def scope_of(self, node: ast.AST) -> Scope:
        """The scope in which an expression looks up its names."""
        return self.table.homes[node]


def _first_line(node: ast.stmt) -> int:
    decorators = getattr(node, "decorator_list", None)
    return decorators[0].lineno if decorators else node.lineno


def _position(node: ast.AST) -> tuple[int, int]:
    place = node.target if isinstance(node, ast.comprehension) else node
    return getattr(place, "lineno", 0), getattr(place, "col_offset", 0)


def _end_position(node: ast.expr) -> tuple[int, int]:
    return node.end_lineno or 0, node.end_col_offset or 0
