"""The files that are linked with one that names FSDP: parsed only when a question leads to them.

Which files a question leads to is found by words and patterns in their text: always all that can matter, and
some more. What is searched is the text on the disk; what is parsed stays.
"""

from __future__ import annotations

import enum
import re
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, reduce
from operator import or_
from typing import TypeAlias

from codemods.analysis.module import Module
from codemods.analysis.reach import Files, Groups, gathered, turned
from codemods.analysis.scopes import below
from codemods.processes import mapped

IMPORT = re.compile(
    rb"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import[ \t]+(\([^)]*\)|[^#\r\n]*)|import[ \t]+([^#\r\n]+))",
    re.MULTILINE,
)
_OWN = re.compile(rb"(?<![\w.])(?:self|cls)\.\Z")
_MOST_FILES = 1 << 18
_HASH = (1 << 44) - 1
_LOOKED_BACK = 400
_FILES_AT_ONCE = 100
_MOST_WORDS = 64
"""How many words' places are kept: the same word is looked for in several ways, one after the other."""
_WORD = re.compile(rb"[A-Za-z_]\w*")
_WORDS = frozenset(byte for byte in range(128) if re.match(rb"\w", bytes([byte])))
"""What words consist of."""
_ALONE = bytes(byte if re.match(rb"\w", bytes([byte])) else ord(" ") for byte in range(256))
"""What stands in no word becomes a space: splitting takes a fifth of the time of a pattern."""


TextTest: TypeAlias = "bytes | Callable[[bytes], bool]"
"""A pattern, or what says whether a text is of interest."""


class Before(enum.Enum):
    """What has to stand right before a name."""

    ANYTHING = "anything"
    A_DEFINITION = "`def`"
    NO_DEFINITION = "neither `def` nor `class`"
    A_DOT = "a dot"
    ANOTHER = "a dot, and before it something else than `self` and `cls`"
    ANOTHER_CALLED = "the same, and not `super()`"


class Shelf:
    """Files by their words.

    Words are kept as hashes of 44 bits: a collision opens a file in vain, no more.
    """

    def __init__(
        self,
        paths: Iterable[str],
        code_of: Callable[[str], bytes],
        load: Callable[[str], Module | None],
        imports: Mapping[str, Iterable[str]],
        modules: Mapping[str, Module],
    ) -> None:
        """
        Args:
            paths: of the linked files.
            code_of: the Python in a file, undecoded.
            load: parse a file; None where that fails.
            imports: path -> paths of the files that it imports.
            modules: those that are parsed so far.
        """
        self._modules = modules
        self.paths = sorted(paths)
        self._code_of = code_of
        self._load = load
        self._imports = imports
        self._words: array[int] | None = None
        self._with_word: dict[str, list[str]] = {}
        self._starts: dict[str, list[tuple[str, list[int]]]] = {}
        self._where: dict[tuple[str, bytes, Before, bytes], list[str]] = {}
        self._starring: dict[str, bool] = {}
        self._imported: dict[str, list[str]] = {}
        self._defined: dict[str, bool] = {}
        self._numbers = {path: number for number, path in enumerate(self.paths)}
        self._bits = {path: 1 << number for path, number in self._numbers.items()}
        self._importers: dict[str, set[str]] | None = None
        self._users: dict[str, int] | None = None
        self._groups: Groups[str] | None = None
        self._together: dict[str, int] | None = None
        self._import_words: dict[str, frozenset[bytes]] = {}

    def load(self, paths: Iterable[str]) -> list[Module]:
        """The modules of some files, those that cannot be parsed left out."""
        return [module for path in paths if (module := self._load(path)) is not None]

    def read(self, paths: Iterable[str]) -> list[Module]:
        """Those of some files that are parsed."""
        return [self._modules[path] for path in paths if path in self._modules]

    def is_read(self, path: str) -> bool:
        """Whether a file is parsed."""
        return path in self._modules

    def imported(self, path: str) -> list[str]:
        """The dotted names that a file may import, `*` too."""
        if path not in self._imported:
            self._imported[path] = imported_names(self._code_of(path))
        return self._imported[path]

    def __contains__(self, path: str) -> bool:
        return path in self._numbers

    def has_star(self, path: str) -> bool:
        """Whether a file may import everything that another has."""
        if path not in self._starring:
            text = self._code_of(path)
            self._starring[path] = b"*" in text and _STAR.search(text) is not None
        return self._starring[path]

    def is_renamed(self, path: str, name: str) -> bool:
        """Whether a file may give an imported thing a name of its own."""
        return re.search(rb"\bas\s+%s\b" % re.escape(name.encode()), self._code_of(path)) is not None

    def speaking(self, wanted: Iterable[tuple[bytes, TextTest]], jobs: int = 1) -> list[str]:
        """The files with one of some texts that match the pattern that goes with it, or pass its test."""
        tests = [(text, re.compile(p).search if isinstance(p, bytes) else p) for text, p in wanted]

        def is_wanted(path: str) -> bool:
            code = self._code_of(path)
            return any(text in code and bool(test(code)) for text, test in tests)

        found = mapped(is_wanted, self.paths, jobs)
        return [path for path, is_it in zip(self.paths, found, strict=True) if is_it]

    def with_word(self, word: str) -> list[str]:
        """The files in which a name can stand, in order."""
        found = self._with_word.get(word)
        if found is None:
            if word.isascii():
                words, key = self.take_up_words(), _key(word.encode())
                first, last = bisect_left(words, key), bisect_left(words, key + _MOST_FILES)
                found = [self.paths[one - key] for one in words[first:last]]
            else:
                found = [path for path in self.paths if not self._code_of(path).isascii()]
            self._with_word[word] = found
        return found

    def where(
        self, word: str, after: bytes = b"", just_before: Before = Before.ANYTHING, before: bytes = b""
    ) -> list[str]:
        """The files in which a name stands with something behind it and something before it.

        Args:
            after: a pattern for what follows.
            before: a pattern for the end of the text before it, of which a few lines are looked at.
        """
        key = word, after, just_before, before
        found = self._where.get(key)
        if found is None:
            length, follows = len(word.encode()), _compiled(after) if after else None
            ends = _compiled(b"(?:" + before + rb")\Z") if before else None
            found = []
            for path, starts in self._places(word):
                text = self._code_of(path)
                for start in starts:
                    if (  # what costs least first: most questions are answered by that
                        _stands(text, start, just_before)
                        and (follows is None or follows.match(text, start + length))
                        and (ends is None or ends.search(text[max(0, start - _LOOKED_BACK) : start]))
                    ):
                        found.append(path)
                        break
            self._where[key] = found
        return found

    def _places(self, word: str) -> list[tuple[str, list[int]]]:
        """The files in which a name stands, and where; of the words last asked for."""
        found = self._starts.pop(word, None)
        if found is None:
            name = word.encode()
            found = [(path, list(_starts(self._code_of(path), name))) for path in self.with_word(word)]
            if len(self._starts) >= _MOST_WORDS:
                del self._starts[next(iter(self._starts))]
        self._starts[word] = found
        return found

    def may_define(self, name: str) -> bool:
        """Whether a file can give a method or an attribute of that name to an object."""
        found = self._defined.get(name)
        if found is None:
            found = self._defined[name] = bool(
                self.where(name, just_before=Before.A_DEFINITION)
                or self.where(name, rb"\s*(?::[^=\n]*)?=(?!=)")
                or self.where(name, rb"\s*:")
                or self.where(name, rb"[\'\" ,]", before=rb"[\'\" ,]")
            )
        return found

    def code_of(self, path: str) -> bytes:
        """The Python in a file, undecoded."""
        return self._code_of(path)

    def users(self, path: str) -> Files:
        """The files that import a file, however indirectly, and itself."""
        if self._users is None:
            self._users = gathered(self._bits, self.importers)
        return Files(self._numbers, self._users.get(path, 0))

    @property
    def importers(self) -> dict[str, set[str]]:
        """Path -> paths of the files that import it."""
        if self._importers is None:
            self._importers = turned(self._imports)
        return self._importers

    def together(self, *paths: str) -> Files:
        """The files that can run in one program with one of these: what anything imports that imports it too.

        An object gets to no others, whatever its class and the name that it has there.
        """
        if self._together is None:
            imported = gathered(self._bits, self._imports)
            self._together = gathered(imported, self.importers)
        return Files(self._numbers, reduce(or_, (self._together.get(path, 0) for path in paths), 0))

    def group(self, path: str) -> str:
        """A name for files that belong together: one imports the other, or a third imports both."""
        if self._groups is None:
            self._groups = Groups[str]()
            for importer in self.paths:
                imported = (other for other in self._imports.get(importer, ()) if other in self._numbers)
                self._groups.join([importer, *imported])
        return self._groups.of(path)

    def may_name(self, path: str, word: str) -> bool:
        """Whether a file can name what another has: by an import, or as an attribute of one."""
        words, name = self.import_words(path), word.encode()
        if name in words or not word.isascii():
            return True
        text = self._code_of(path)
        if self.has_star(path):
            return True
        for start in _starts(text, name):
            chain = CHAIN.search(text[max(0, start - _LOOKED_BACK) : start])
            if chain is not None and chain[1] in words:
                return True
        return False

    def import_words(self, path: str) -> frozenset[bytes]:
        """The words of a file's import statements."""
        if path not in self._import_words:
            lines = b"\n".join(m[0] for m in IMPORT.finditer(self._code_of(path)))
            self._import_words[path] = frozenset(_WORD.findall(lines))
        return self._import_words[path]

    def take_up_words(self, jobs: int = 1) -> array[int]:
        """Hash and number of a file, for every word of every file, sorted; found by several processes."""
        if self._words is None:
            starts = range(0, len(self.paths), _FILES_AT_ONCE)
            found = [one for part in mapped(self._words_from, starts, jobs) for one in part]
            found.sort()
            self._words = array("Q", found)
        return self._words

    def _words_from(self, start: int) -> array[int]:
        """The same of some files, from one number on."""
        found: list[int] = []
        for number, path in enumerate(self.paths[start : start + _FILES_AT_ONCE], start):
            words = set(self._code_of(path).translate(_ALONE).split())
            found += [(hash(word) & _HASH) * _MOST_FILES + number for word in words]
        found.sort()
        return array("Q", found)


CHAIN = re.compile(rb"(?<![\w.])(\w+)(?:\s*\.\s*\w+)*\s*\.\Z")
"""`a.b.` before a name; the group is `a`."""
_STAR = re.compile(rb"^[ \t]*from[ \t]+[\w.]+[ \t]+import[ \t]*\(?[ \t]*\*", re.MULTILINE)


def imported_names(code: bytes) -> list[str]:
    """Dotted names that a file may import, by pattern: more than it does, never less."""
    names: list[str] = []
    for source, imported, plain in IMPORT.findall(code):
        if source:
            base = source.decode()
            names.append(base)
            for part in imported.decode(errors="replace").strip("()").split(","):
                word = part.split("#")[-1].split()[:1] if "\n" not in part else part.split()[-1:]
                if word and (word[0].isidentifier() or word[0] == "*"):
                    names.append(below(base, word[0]))
        else:
            names += [part.split()[0] for part in plain.decode(errors="replace").split(",") if part.split()]
    return names


def shelf_of(modules: Mapping[str, Module]) -> Shelf:
    """A shelf of files that are all parsed already, each of which may import any other."""
    texts = {path: module.text.encode() for path, module in modules.items()}
    imports = {path: modules.keys() for path in modules}
    return Shelf(modules, texts.__getitem__, modules.get, imports, modules)


def _key(word: bytes) -> int:
    return (hash(word) & _HASH) * _MOST_FILES


def _starts(text: bytes, name: bytes) -> Iterator[int]:
    """Where a whole name stands."""
    start = text.find(name)
    while start >= 0:
        end = start + len(name)
        if (start == 0 or text[start - 1] not in _WORDS) and (end == len(text) or text[end] not in _WORDS):
            yield start
        start = text.find(name, end)


def _stands(text: bytes, start: int, just_before: Before) -> bool:
    if just_before is Before.ANYTHING:
        return True
    if just_before is Before.A_DEFINITION:
        return text.endswith(b"def ", 0, start)
    if just_before is Before.NO_DEFINITION:
        return not text.endswith((b"def ", b"class "), 0, start)
    if not text.endswith(b".", 0, start):
        return False
    if just_before is Before.ANOTHER_CALLED and text.endswith(b"super().", 0, start):
        return False
    return just_before is Before.A_DOT or _OWN.search(text[max(0, start - 12) : start]) is None


@cache
def _compiled(pattern: bytes) -> re.Pattern[bytes]:
    return re.compile(pattern, re.MULTILINE)
