"""Which names star imports can bring, by the words of files alone."""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from codemods.torch_names import public_names_of

if TYPE_CHECKING:
    from codemods.analysis.shelf import Shelf

_WORD = re.compile(rb"[A-Za-z_]\w*")
_BINDING = re.compile(
    rb"\b(?:def|class)[ \t]+(\w+)"
    rb"|\bglobal[ \t]+([\w, \t]+)"
    rb"|\bfor[ \t]+([\w,\s.()\[\]*]+?)\sin\b"
    rb"|\bas[ \t]+(\w+|[(\[][\w,\s.()\[\]*]*)"
    rb"|\bcase[ \t]([^\n]*)"
    rb"|\b(\w+)[ \t]*:="
)
"""Where names are bound other than by imports and assignments; the names stand in the group."""
_ARGUMENTS = re.compile(rb"(?<=[\w)\]\"'])[ \t]*[(\[][^()\[\]]*[)\]]")
"""The innermost brackets of a call or subscript."""
_TARGETS = re.compile(rb"(.*)(?<![=!<>])=(?!=)")
_AT_ITS_EDGE = re.compile(
    rb"^(?:(?:async[ \t]+)?def|class)[ \t]+(\w+)|^(?! )([\w .,\[\]*]+)(?::[^=\n]*)?=(?!=)", re.MULTILINE
)
_COMPOUND = re.compile(rb"[ \t]*(?:if|elif|else|try|finally|while|for|with|except|case|async|class|def)\b")


@dataclass(slots=True)
class Stars:
    """Answers without parsing: a package that imports everything of a thousand files is asked for many names.

    Attributes:
        locate: dotted name and importing file -> the file of the project that it means.
    """

    shelf: Shelf
    locate: Callable[[str, str], str | None]
    _bound: dict[str, frozenset[bytes]] = field(default_factory=dict)
    _edges: dict[str, frozenset[bytes]] = field(default_factory=dict)
    _taken: dict[str, tuple[frozenset[str], frozenset[str]]] = field(default_factory=dict)

    def may_have(self, path: str, name: str) -> bool:
        """Whether a file can have a name at its top: its own, or from what it imports everything of."""
        paths, outside = self._taken_from(path)
        if not name.isascii() or any(name in public_names_of(module) for module in outside):
            return True
        word = name.encode()
        may_bind = self._may_hide if hasattr(builtins, name) else self._may_bind
        return any(one in paths and may_bind(one, word) for one in self.shelf.with_word(name))

    def _may_bind(self, path: str, word: bytes) -> bool:
        return word in self._bound_in(path)

    def _may_hide(self, path: str, word: bytes) -> bool:
        """Whether a file binds a name of Python's own in a line at its left edge, or imports it.

        Prose speaks of `any` and `set`, and functions have such variables: a package of a thousand files with
        stars would be parsed for them."""
        if path not in self._edges:
            bound = _AT_ITS_EDGE.findall(self.shelf.code_of(path))
            words = _WORD.findall(b" ".join(one for pair in bound for one in pair))
            self._edges[path] = self.shelf.import_words(path).union(words)
        return word in self._edges[path]

    def _bound_in(self, path: str) -> frozenset[bytes]:
        """The names that a file may bind anywhere."""
        if path not in self._bound:
            code = self.shelf.code_of(path)
            bound = [found[found.lastindex or 0] for found in _BINDING.finditer(code)]
            targets = b" ".join([*bound, *_assigned(code)])
            self._bound[path] = self.shelf.import_words(path).union(_WORD.findall(targets))
        return self._bound[path]

    def _taken_from(self, path: str) -> tuple[frozenset[str], frozenset[str]]:
        """A file and those that it takes everything from, however indirectly, and such modules that are not
        in the project."""
        if path not in self._taken:
            paths, outside, waiting = {path}, set[str](), [path]
            while waiting:
                importer = waiting.pop()
                for target in self.shelf.imported(importer) if self.shelf.has_star(importer) else ():
                    if not target.endswith("*"):
                        continue
                    module = target[:-1] if not target.rstrip(".*") else target[:-2]
                    found = self.locate(module, importer)
                    if found is None:
                        outside.add(module)
                    elif found not in paths:
                        paths.add(found)
                        waiting.append(found)
            self._taken[path] = frozenset(paths), frozenset(outside)
        return self._taken[path]


def _assigned(code: bytes) -> Iterator[bytes]:
    """What stands to the left of the equals signs of a file, as far as it can be a target.

    Line by line: a pattern for whole statements tries each line from each of its characters.
    """
    lines = code.replace(b"\\\n", b" ").replace(b"\\\r\n", b" ").splitlines()
    for number, line in enumerate(lines):
        if b"=" not in line:
            continue
        length = 0
        while length != len(line):
            length, line = len(line), _ARGUMENTS.sub(b"", line)
        for part in line.split(b";"):
            found = _TARGETS.match(part)
            if found is None:
                continue
            target = found[1] if _COMPOUND.match(part) else found[1].partition(b":")[0]
            yield target
            if _closes(target) > 0:  # it began on a line before
                yield from _begun(lines, number, _closes(target))


def _begun(lines: list[bytes], number: int, closes: int) -> Iterator[bytes]:
    """The lines before one, back to that which opens so many of its brackets."""
    while closes > 0 and number > 0:
        number -= 1
        closes += _closes(lines[number])
        yield lines[number]


def _closes(text: bytes) -> int:
    """How many more brackets some text closes than it opens."""
    return text.count(b")") + text.count(b"]") - text.count(b"(") - text.count(b"[")
