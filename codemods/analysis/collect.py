"""From files to a project: which modules matter, their calls, the wrap calls."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from codemods.analysis.callers import Callers
from codemods.analysis.enabled import without_other_wraps
from codemods.analysis.evaluate import Evaluator
from codemods.analysis.index import Index
from codemods.analysis.library_models import library_models
from codemods.analysis.link import Links
from codemods.analysis.meanings import Meanings
from codemods.analysis.module import Module
from codemods.analysis.reach import reached, turned
from codemods.analysis.shelf import Shelf, imported_names, shelf_of
from codemods.analysis.spread_starts import follow
from codemods.analysis.telling import may_use_fsdp, tells_of_fsdp
from codemods.analysis.wrap_calls import find_wraps
from codemods.editing.layout import CONFIGURED_IN, configured_line_length
from codemods.editing.notebooks import code_bytes, read_notebook
from codemods.model import Options
from codemods.processes import mapped
from codemods.project import Project
from codemods.sources import decode, names_fsdp

_COARSE_WORDS = {
    "batch_norm": (rb"BatchNorm", rb"torchvision", rb"timm\b"),
    "set_device": (rb"\.set_device\(", rb"set_device_index\("),
}
"""Patterns that each begin with a text: such a one is looked for ten times as fast as alternatives."""


_MOST_BYTES = 16 << 20
"""Contents of files that are kept beside those of modules; what is older is read again when asked for."""


@dataclass(slots=True)
class Contents:
    """What was read last, by file, up to a size in bytes."""

    most_bytes: int = _MOST_BYTES
    _kept: dict[str, bytes] = field(default_factory=dict)
    _size_bytes: int = 0

    def get(self, path: str) -> bytes | None:
        """The contents of a file, if they are kept."""
        return self._kept.get(path)

    def keep(self, path: str, data: bytes) -> bytes:
        """Keep the contents of a file, and let go of the oldest where they are too many."""
        self._kept[path] = data
        self._size_bytes += len(data)
        while self._size_bytes > self.most_bytes:
            self._size_bytes -= len(self._kept.pop(next(iter(self._kept))))
        return data


@dataclass(slots=True)
class Reader:
    """Reads files and parses them once, when asked; what cannot be read stands in `skipped`.

    Attributes:
        texts: file -> the text to read in place of what the disk holds.
    """

    target: Path
    texts: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    data: Contents = field(default_factory=Contents)
    cells: Contents = field(default_factory=Contents)
    modules: dict[str, Module] = field(default_factory=dict)

    def with_texts(self, texts: dict[str, str]) -> Reader:
        """The same files, some with other texts; those that are as before are not parsed again."""
        same = {p: m for p, m in self.modules.items() if p not in texts or m.text == texts[p]}
        return Reader(self.target, dict(texts), dict(self.skipped), self.data, self.cells, same)

    def bytes_of(self, path: str) -> bytes:
        """The contents of a file; empty where it cannot be read (and is reported)."""
        if path in self.modules:
            return self.modules[path].source.data
        data = self.data.get(path)
        return self.data.keep(path, self._read(path)) if data is None else data

    def _read(self, path: str) -> bytes:
        try:
            if path.endswith("/"):
                next((self.target / path).iterdir(), None)  # it could not be listed: say why
            return (self.target / path).read_bytes()
        except OSError as error:
            self.skipped[path] = f"cannot be read: {error.strerror or error}"
            return b""

    def code_of(self, path: str) -> bytes:
        """The Python in a file, for searches by pattern."""
        if not path.endswith(".ipynb"):
            return self.bytes_of(path)
        cells = self.cells.get(path)
        return self.cells.keep(path, code_bytes(self.bytes_of(path))) if cells is None else cells

    def load(self, path: str) -> Module | None:
        """Decode and parse a file."""
        if path in self.modules:
            return self.modules[path]
        if path in self.skipped:
            return None
        try:
            read = read_notebook if path.endswith(".ipynb") else decode
            source = read(path, self.bytes_of(path))
            if path in self.texts:
                source = replace(source, text=self.texts[path])
            self.modules[path] = Module(source)
        except SyntaxError as error:
            where = f" (line {error.lineno})" if error.lineno else ""
            self.skipped[path] = f"cannot be parsed: {error.msg}{where}"
        except UnicodeDecodeError as error:
            self.skipped[path] = f"cannot be decoded as {error.encoding}: byte {error.start}: {error.reason}"
        except (ValueError, RecursionError, MemoryError, LookupError) as error:
            self.skipped[path] = f"cannot be parsed: {error}"
        return self.modules.get(path)


@dataclass(frozen=True, slots=True)
class _Said:
    """What the text of a file says.

    Attributes:
        names_fsdp: FSDP, anywhere.
        imported: dotted names that it may import.
        mentions: coarse words.
        unread: why it could not be read.
    """

    names_fsdp: bool
    imported: list[str]
    mentions: frozenset[str]
    unread: str | None


def _said(reader: Reader, path: str) -> _Said:
    data, code = reader.bytes_of(path), reader.code_of(path)
    mentions = (w for w, patterns in _COARSE_WORDS.items() if any(re.search(p, data) for p in patterns))
    return _Said(names_fsdp(data), imported_names(code), frozenset(mentions), reader.skipped.get(path))


def read_project(
    target: Path, files: list[str], options: Options, reader: Reader | None = None, jobs: int = 1
) -> tuple[Project, dict[str, str]]:
    """Read what names FSDP, and of what is linked with it by imports that which sharded models can get to.

    Args:
        reader: what has been read already.
        jobs: processes that share the reading: of each text a few facts are taken.

    Returns:
        The project, and file -> why it could not be read.
    """
    reader = reader or Reader(target)
    index = Index([path for path in files if not path.endswith(".ipynb")], reader.load)
    said = dict(zip(files, mapped(partial(_said, reader), files, jobs), strict=True))
    reader.skipped.update({path: one.unread for path, one in said.items() if one.unread is not None})
    hits = [path for path in files if said[path].names_fsdp]
    targets = {path: _located(index, path, one.imported) for path, one in said.items()}
    linked = _closure(hits, targets)
    shelf = Shelf(linked, reader.code_of, reader.load, targets, reader.modules)
    shelf.take_up_words(jobs)  # before there are trees: it takes much memory for a moment
    if options.drop_fsdp1:
        shelf.load(linked)
    else:
        judged = zip(hits, mapped(partial(_may_use_fsdp, reader, index), hits, jobs), strict=True)
        shelf.load(path for path, may_use in judged if may_use)
        # What names mean is found anew when all is read: then some are of files that are not read yet.
        _, wraps = find_wraps(index, Meanings(index, shelf), shelf, reader.modules)
        shelf.load(hits if wraps else ())  # where nothing is wrapped, many only speak of FSDP
        shelf.load(_told_by_rules(shelf, jobs, has_wraps=bool(wraps)))
    project = link(index, reader.modules, options, shelf)
    project.mentions = frozenset().union(*(one.mentions for one in said.values()))
    project.imports = targets
    project.linked = tuple(linked)
    project.line_length = _line_length(target)
    return project, reader.skipped


def _may_use_fsdp(reader: Reader, index: Index, path: str) -> bool:
    """Whether a file has to be kept as a tree for what it says of FSDP itself."""
    if not tells_of_fsdp(reader.bytes_of(path)):  # of a notebook too: one that cannot be read has to be told
        return False
    module = reader.load(path)
    if module is None or may_use_fsdp(module, index):
        return True
    del reader.modules[path]  # nobody knows of its tree yet
    return False


def _told_by_rules(shelf: Shelf, jobs: int, *, has_wraps: bool) -> list[str]:
    """Files that rules have to see, though no model may get there."""
    from codemods.leftovers import UNMISTAKABLE
    from codemods.rule import all_rules

    found = {path for word in sorted(UNMISTAKABLE) for path in shelf.with_word(word)}
    asking = [rule for rule in all_rules() if has_wraps or not rule.needs_wraps]
    wanted = [(text, pattern) for rule in asking for text, pattern in rule.where.items()]
    return sorted(found.union(shelf.speaking(wanted, jobs)))


def _line_length(target: Path) -> int | None:
    """From the target's own configuration, or that of a directory above it within the same repository."""
    for folder in (target, *target.parents):
        texts = [
            (folder / name).read_text(errors="replace") for name in CONFIGURED_IN if (folder / name).is_file()
        ]
        found = configured_line_length(texts)
        if found is not None or (folder / ".git").exists():
            return found
    return None


def launched(project: Project, reader: Reader, paths: Iterable[str]) -> Project | None:
    """A project once more, with programs whose models are sharded if settings elsewhere say so.

    Args:
        paths: of these programs, most of which never say FSDP.

    Returns:
        None where none of them has such models.
    """
    programs = frozenset(paths)
    modules = [module for path in sorted(programs) if (module := reader.load(path)) is not None]
    if not library_models(project.links.classes, project.meanings, modules, programs):
        return None
    linked = _closure(sorted({*project.linked, *programs}), project.imports)
    shelf = Shelf(linked, reader.code_of, reader.load, project.imports, reader.modules)
    other = link(project.index, reader.modules, project.options, shelf, programs)
    other.mentions, other.imports, other.linked = project.mentions, project.imports, tuple(linked)
    other.line_length = project.line_length
    return other


def link(
    index: Index,
    modules: dict[str, Module],
    options: Options,
    shelf: Shelf | None = None,
    launched: frozenset[str] = frozenset(),
) -> Project:
    """The project of these modules.

    Args:
        shelf: the files that are linked with them; only these if None.
        launched: files of programs for which settings elsewhere may choose FSDP.
    """
    shelf = shelf or shelf_of(modules)
    meanings = Meanings(index, shelf)
    naming, wraps = find_wraps(index, meanings, shelf, modules)
    wraps = without_other_wraps(index, meanings, naming, wraps)
    wraps.sort(key=lambda w: (w.module.path, w.node.lineno, w.node.col_offset))
    callers = Callers(index, shelf)
    links = Links(index, shelf, naming, callers, {w.node: w for w in wraps}, meanings, launched)
    links.spread = follow(links, meanings)
    for path in sorted(modules):  # in the order of their names, whatever led to them
        modules[path] = modules.pop(path)
    project = Project(options, modules, index, links, Evaluator(index, callers), meanings, wraps)
    project.looked_at = list(modules.values())
    return project


def _closure(hits: list[str], targets: dict[str, set[str]]) -> list[str]:
    """Hits, everything that imports them however indirectly, and everything these import."""
    return sorted(reached(reached(hits, turned(targets)), targets))


def _located(index: Index, path: str, names: list[str]) -> set[str]:
    found = (index.locate(name, path) for name in names)
    return {other for other in found if other is not None and other != path}
