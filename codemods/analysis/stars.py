"""Which names star imports can bring, by the words of files alone."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from codemods.torch_names import public_names_of

if TYPE_CHECKING:
    from codemods.analysis.shelf import Shelf

_WORD = re.compile(rb"[A-Za-z_]\w*")
_BINDING = re.compile(
    rb"^[ \t]*(?:async[ \t]+)?(?:def|class|global)[ \t]+\w+"
    rb"|^[ \t]*(?:async[ \t]+)?for[ \t]+[\w, \t()\[\]*]+?[ \t]in\b"
    rb"|^[ \t]*(?:async[ \t]+)?(?:with|except)\b[^\n]*"
    rb"|\bas[ \t]+\w+[ \t]*[,)]?[ \t]*:?[ \t]*$"
    rb"|^[ \t]*(?:if|elif|else|try|finally|while)\b[^\n]*:[^\n=]*=(?!=)"
    rb"|(?:^|;)[ \t]*(?:\w+(?:\[[^\]\n]*\]|\.\w+)*[ \t]*=[ \t]*)*"
    rb"((?:[\w, \t)\]*=]|(?<!\w)[(\[])+)[ \t]*(?::[^=\n]*)?=(?!=)"
    rb"|^[ \t]*(?:[\w*]+[ \t]*,[ \t]*)*[(\[][ \t]*\n([\w,\s*()\[\]]{1,600}?)[)\]][ \t]*=(?!=)"
    rb"|\w+[ \t]*:=",
    re.MULTILINE,
)
"""Where names are bound, imports left out: definitions, loops, contexts, assignments (whose targets are the
group); other names that stand there count too."""


@dataclass(slots=True)
class Stars:
    """Answers without parsing: a package that imports everything of a thousand files is asked for many names.

    Attributes:
        locate: dotted name and importing file -> the file of the project that it means.
    """

    shelf: Shelf
    locate: Callable[[str, str], str | None]
    _bound: dict[str, frozenset[bytes]] = field(default_factory=dict)
    _taken: dict[str, tuple[frozenset[str], frozenset[str]]] = field(default_factory=dict)

    def may_have(self, path: str, name: str) -> bool:
        """Whether a file can have a name at its top: its own, or from what it imports everything of."""
        paths, outside = self._taken_from(path)
        if not name.isascii() or any(name in public_names_of(module) for module in outside):
            return True
        word = name.encode()
        return any(one in paths and word in self._bound_in(one) for one in self.shelf.with_word(name))

    def _bound_in(self, path: str) -> frozenset[bytes]:
        """The names that a file may bind anywhere."""
        if path not in self._bound:
            targets = b" ".join(
                found[1] or found[2] or found[0] for found in _BINDING.finditer(self.shelf.code_of(path))
            )
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
