"""The files that are linked with one that names FSDP: parsed only when a question leads to them.

Which files a question leads to is found by words and patterns in their text: always all that can matter, and
some more. What is searched is the text on the disk; what is parsed stays.
"""

from __future__ import annotations

import re
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

from codemods.analysis.module import Module
from codemods.analysis.reach import reached, turned

IMPORT = re.compile(
    rb"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import[ \t]+(\([^)]*\)|[^#\r\n]*)|import[ \t]+([^#\r\n]+))",
    re.MULTILINE,
)
OF_OTHERS = rb"(?<=\.NAME)(?<!\bself\.NAME)(?<!\bcls\.NAME)"
"""Behind `NAME`: it is an attribute, but not one of `self` or `cls`."""
_LOOKED_BACK = 400
_WORD = re.compile(rb"[A-Za-z_]\w*")


class Shelf:
    """Files by their words.

    A file's words are kept as sorted checksums of 32 bits: a collision opens a file in vain, no more.
    """

    def __init__(
        self,
        paths: Iterable[str],
        code_of: Callable[[str], bytes],
        load: Callable[[str], Module | None],
        imports: Mapping[str, Iterable[str]],
    ) -> None:
        """
        Args:
            paths: of the linked files.
            code_of: the Python in a file, undecoded.
            load: parse a file; None where that fails.
            imports: path -> paths of the files that it imports.
        """
        self.paths = sorted(paths)
        self._code_of = code_of
        self._load = load
        self._imports = imports
        self._words: dict[str, array[int]] = {}
        self._with_word: dict[str, list[str]] = {}
        self._where: dict[tuple[str, bytes, bytes], list[str]] = {}
        self._users: dict[str, frozenset[str]] = {}
        self._importers: dict[str, set[str]] | None = None
        self._import_words: dict[str, frozenset[bytes]] = {}

    def load(self, paths: Iterable[str]) -> list[Module]:
        """The modules of some files, those that cannot be parsed left out."""
        return [module for path in paths if (module := self._load(path)) is not None]

    def with_word(self, word: str) -> list[str]:
        """The files in which a name can stand, in order."""
        found = self._with_word.get(word)
        if found is None:
            if word.isascii():
                sum_ = zlib.crc32(word.encode())
                found = [path for path in self.paths if _holds(self._words_of(path), sum_)]
            else:
                found = [path for path in self.paths if not self._code_of(path).isascii()]
            self._with_word[word] = found
        return found

    def where(self, word: str, after: bytes, before: bytes = b"") -> list[str]:
        """The files in which a name stands with something behind it, and something before it.

        Args:
            after: a pattern for what follows; `NAME` in it is the name (for what looks behind).
            before: a pattern for the end of the text before it, of which a few lines are looked at.
        """
        key = word, after, before
        found = self._where.get(key)
        if found is None:
            name = re.escape(word.encode())
            # A pattern that starts with the name itself is searched for several times as fast.
            search = re.compile(name + rb"(?!\w)" + after.replace(b"NAME", name), re.MULTILINE)
            ends = _compiled(b"(?:" + before + rb")\Z") if before else None
            found = [path for path in self.with_word(word) if _stands(self._code_of(path), search, ends)]
            self._where[key] = found
        return found

    def code_of(self, path: str) -> bytes:
        """The Python in a file, undecoded."""
        return self._code_of(path)

    def users(self, path: str) -> frozenset[str]:
        """The files that import a file, however indirectly, and itself."""
        if path not in self._users:
            if self._importers is None:
                self._importers = turned(self._imports)
            self._users[path] = frozenset(reached([path], self._importers))
        return self._users[path]

    def may_name(self, path: str, word: str) -> bool:
        """Whether a file can name what another has: by importing it, or as an attribute of what it imports."""
        words = self.import_words(path)
        if word.encode() in words or not word.isascii():
            return True
        text = self._code_of(path)
        if _STAR.search(text):
            return True
        for match in re.finditer(rb"(?<=\.)%s\b" % re.escape(word.encode()), text):
            chain = CHAIN.search(text[max(0, match.start() - _LOOKED_BACK) : match.start()])
            if chain is not None and chain[1] in words:
                return True
        return False

    def import_words(self, path: str) -> frozenset[bytes]:
        """The words of a file's import statements."""
        if path not in self._import_words:
            lines = b"\n".join(m[0] for m in IMPORT.finditer(self._code_of(path)))
            self._import_words[path] = frozenset(_WORD.findall(lines))
        return self._import_words[path]

    def _words_of(self, path: str) -> array[int]:
        if path not in self._words:
            words = set(_WORD.findall(self._code_of(path)))
            self._words[path] = array("I", sorted(map(zlib.crc32, words)))
        return self._words[path]


CHAIN = re.compile(rb"(?<![\w.])(\w+)(?:\s*\.\s*\w+)*\s*\.\Z")
"""`a.b.` before a name; the group is `a`."""
_STAR = re.compile(rb"^[ \t]*from[ \t]+[\w.]+[ \t]+import[ \t]*\(?[ \t]*\*", re.MULTILINE)


def shelf_of(modules: Mapping[str, Module]) -> Shelf:
    """A shelf of files that are all parsed already, each of which may import any other."""
    texts = {path: module.text.encode() for path, module in modules.items()}
    return Shelf(modules, texts.__getitem__, modules.get, {path: modules.keys() for path in modules})


def _holds(sums: array[int], sum_: int) -> bool:
    at = bisect_left(sums, sum_)
    return at < len(sums) and sums[at] == sum_


def _stands(text: bytes, search: re.Pattern[bytes], ends: re.Pattern[bytes] | None) -> bool:
    for match in search.finditer(text):
        start = match.start()
        if text[start - 1 : start].isalnum() or text[start - 1 : start] == b"_":
            continue
        if ends is None or ends.search(text[max(0, start - _LOOKED_BACK) : start]):
            return True
    return False


@lru_cache(maxsize=None)
def _compiled(pattern: bytes) -> re.Pattern[bytes]:
    return re.compile(pattern)
