"""From files to a project: which modules matter, their calls, the wrap calls."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
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
from codemods.analysis.wrap_calls import find_wraps
from codemods.editing.layout import CONFIGURED_IN, configured_line_length
from codemods.editing.notebooks import code_bytes, read_notebook
from codemods.model import Options
from codemods.project import Project
from codemods.sources import decode, names_fsdp

_COARSE_WORDS = {
    "batch_norm": (rb"BatchNorm", rb"torchvision", rb"timm\b"),
    "set_device": (rb"\.set_device\(", rb"set_device_index\("),
}
"""Patterns that each begin with a text: such a one is looked for ten times as fast as alternatives."""


@dataclass(slots=True)
class Reader:
    """Reads files once and parses them when asked; what cannot be read stands in `skipped`.

    Attributes:
        texts: file -> the text to read in place of what the disk holds.
    """

    target: Path
    texts: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    data: dict[str, bytes] = field(default_factory=dict)
    cells: dict[str, bytes] = field(default_factory=dict)
    modules: dict[str, Module] = field(default_factory=dict)

    def with_texts(self, texts: dict[str, str]) -> Reader:
        """The same files, some with other texts; those that are as before are not parsed again."""
        same = {p: m for p, m in self.modules.items() if p not in texts or m.text == texts[p]}
        return Reader(self.target, dict(texts), dict(self.skipped), self.data, self.cells, same)

    def bytes_of(self, path: str) -> bytes:
        """The contents of a file; empty where it cannot be read (and is reported)."""
        if path not in self.data:
            try:
                if path.endswith("/"):
                    next((self.target / path).iterdir(), None)  # it could not be listed: say why
                self.data[path] = (self.target / path).read_bytes()
            except OSError as error:
                self.skipped[path] = f"cannot be read: {error.strerror or error}"
                self.data[path] = b""
        return self.data[path]

    def code_of(self, path: str) -> bytes:
        """The Python in a file, for searches by pattern."""
        if not path.endswith(".ipynb"):
            return self.bytes_of(path)
        if path not in self.cells:
            self.cells[path] = code_bytes(self.bytes_of(path))
        return self.cells[path]

    def forget(self, paths: Iterable[str]) -> None:
        """Let go of the contents of files; they are read again if asked for."""
        for path in paths:
            self.data.pop(path, None)
            self.cells.pop(path, None)

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


def read_project(
    target: Path, files: list[str], options: Options, reader: Reader | None = None
) -> tuple[Project, dict[str, str]]:
    """Read what names FSDP, and of what is linked with it by imports that which sharded models can get to.

    Args:
        reader: what has been read already.

    Returns:
        The project, and file -> why it could not be read.
    """
    reader = reader or Reader(target)
    index = Index([path for path in files if not path.endswith(".ipynb")], reader.load)
    hits = [path for path in files if names_fsdp(reader.bytes_of(path))]
    importing = {path: imported_names(reader.code_of(path)) for path in files}
    targets = {path: _located(index, path, names) for path, names in importing.items()}
    linked = _closure(hits, targets)
    mentions = frozenset(
        word
        for word, patterns in _COARSE_WORDS.items()
        if any(re.search(pattern, data) for pattern in patterns for data in reader.data.values())
    )
    reader.forget(set(files).difference(linked))
    shelf = Shelf(linked, reader.code_of, reader.load, targets, reader.modules)
    shelf.load(linked if options.drop_fsdp1 else hits)
    if not options.drop_fsdp1:
        # What names mean is found anew when all is read: then some are of files that are not read yet.
        _, wraps = find_wraps(index, Meanings(index, shelf), shelf, reader.modules)
        shelf.load(_told_by_rules(shelf, has_wraps=bool(wraps)))
    project = link(index, reader.modules, options, shelf)
    project.mentions = mentions
    project.imports = targets
    project.linked = tuple(linked)
    project.line_length = _line_length(target)
    return project, reader.skipped


def _told_by_rules(shelf: Shelf, *, has_wraps: bool) -> list[str]:
    """Files that rules have to see, though no model may get there."""
    from codemods.leftovers import UNMISTAKABLE
    from codemods.rule import all_rules

    found = {path for word in sorted(UNMISTAKABLE) for path in shelf.with_word(word)}
    asking = [rule for rule in all_rules() if has_wraps or not rule.needs_wraps]
    wanted = [(text, pattern) for rule in asking for text, pattern in rule.where.items()]
    return sorted(found.union(*(shelf.speaking(text, pattern) for text, pattern in wanted)))


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
