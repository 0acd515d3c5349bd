"""The words of configuration files: values with their places, the file, and what reading it found."""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from codemods.model import Place, Span
from codemods.sources import SourceFile


@dataclass(frozen=True, slots=True)
class Scalar:
    """A string, number, boolean or null."""

    value: object
    span: Span


@dataclass(frozen=True, slots=True)
class Items:
    """A sequence; the span of a block sequence ends with its last item."""

    items: tuple[Node, ...]
    span: Span

    @property
    def value(self) -> list[object]:
        return [item.value for item in self.items]


@dataclass(frozen=True, slots=True)
class Entry:
    """`key: value` of a mapping."""

    key: str
    key_span: Span
    node: Node

    @property
    def value(self) -> object:
        return self.node.value

    @property
    def span(self) -> Span:
        """From the start of the key to the end of the value."""
        return Span(self.key_span.start, max(self.key_span.end, self.node.span.end))


@dataclass(frozen=True, slots=True)
class Mapping:
    """A mapping; the span of a block mapping ends with its last value.

    Attributes:
        flow: written in braces, as in JSON.
        shared: written elsewhere (a YAML alias) or built from elsewhere (a merge key): not to be edited here.
    """

    entries: tuple[Entry, ...]
    span: Span
    flow: bool
    shared: bool = False

    @property
    def value(self) -> dict[str, object]:
        return {entry.key: entry.value for entry in self.entries}

    def get(self, key: str) -> Entry | None:
        """The entry of that key; the last one counts where a key stands twice."""
        for entry in reversed(self.entries):
            if entry.key == key:
                return entry
        return None

    def mappings(self) -> Iterator[Mapping]:
        """This mapping and every mapping below it."""
        yield self
        for entry in self.entries:
            yield from below(entry.node)


Node: TypeAlias = "Scalar | Items | Mapping"


def below(node: Node) -> Iterator[Mapping]:
    """Every mapping in a value."""
    match node:
        case Mapping():
            yield from node.mappings()
        case Items():
            for item in node.items:
                yield from below(item)
        case Scalar():
            return


@dataclass(slots=True)
class ConfigFile:
    """One configuration file.

    Attributes:
        kind: `yaml`, `json` or `shell`.
        roots: the documents of a YAML file, the one value of a JSON file; empty for shell.
    """

    source: SourceFile
    kind: str
    roots: tuple[Node, ...] = ()
    _starts: list[int] = field(default_factory=list)

    @property
    def path(self) -> str:
        return self.source.path

    @property
    def text(self) -> str:
        return self.source.text

    def line_of(self, position: int) -> int:
        """Line, from 1, of a text position."""
        return bisect.bisect_right(self._line_starts(), position)

    def position(self, line: int) -> int:
        """Position of the first character of a line, from 1."""
        return self._line_starts()[line - 1]

    def _line_starts(self) -> list[int]:
        if not self._starts:
            self._starts = [0, *(i + 1 for i, c in enumerate(self.text) if c == "\n")]
        return self._starts

    def line_start(self, position: int) -> int:
        """Position of the first character of the line."""
        return self.text.rfind("\n", 0, position) + 1

    def line_end(self, position: int) -> int:
        """Position just after the line's ending."""
        found = self.text.find("\n", position)
        return len(self.text) if found < 0 else found + 1

    def place(self, span: Span) -> Place:
        """A span as a place for people."""
        column = span.start - self.line_start(span.start) + 1
        return Place(self.path, self.line_of(span.start), column, span)
