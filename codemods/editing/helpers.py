"""The helper module written into a repository: where it stands, and its text with only the parts used."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from codemods.editing.helper_additions import with_additions
from codemods.editing.helper_assembly import Needs, assemble
from codemods.editing.helper_layout import Style
from codemods.editing.helper_parts import KNOWN_NAMES
from codemods.editing.helper_places import HelperPlace, helper_places
from codemods.editing.helper_style import style_of
from codemods.model import Edit, Ref
from codemods.project import Project

_MARK = "Written by fsdp-migrate"


def is_written(tree: ast.Module) -> bool:
    """Whether a file is a helper module that an earlier run wrote, edited since or not."""
    return _MARK in (ast.get_docstring(tree) or "")


@dataclass(frozen=True, slots=True)
class HelperHome:
    """One helper module.

    Attributes:
        path: the file, relative to the target.
        package: dotted name of the package it lies in; empty at a source root.
        relative: files that import it relatively.
        names: its functions and types that the repository's files name.
        needs: keywords and fields in use.
        newline: line ending of the files that use it.
        style: how the repository writes its code.
    """

    path: str
    package: str
    relative: frozenset[str]
    names: frozenset[str]
    needs: Needs
    newline: str
    style: Style = field(default_factory=Style)

    def import_name(self, path: str) -> str:
        """What a file imports it as."""
        stem = PurePosixPath(self.path).stem
        if path in self.relative:
            here, there = PurePosixPath(path).parent.parts, PurePosixPath(self.path).parent.parts
            same = next((n for n, (a, b) in enumerate(zip(here, there, strict=False)) if a != b), None)
            same = min(len(here), len(there)) if same is None else same
            return "." * (len(here) - same + 1) + ".".join([*there[same:], stem])
        return f"{self.package}.{stem}" if self.package else stem


def helper_homes(
    project: Project, edits: dict[str, list[Edit]], needs: dict[str, Needs], target: Path
) -> dict[str, HelperHome]:
    """File -> its helper module, for the files whose edits use one."""
    names = {path: _names_of(found) for path, found in edits.items()}
    homes: dict[str, HelperHome] = {}
    for place in helper_places(project, [path for path in edits if names[path]], target):
        wanted = frozenset().union(*(names[path] for path in place.files))
        joined = Needs()
        for path in place.files:
            joined = joined.joined(needs.get(path, Needs()))
        if "batch_norm" in project.mentions:
            joined = joined.joined(Needs(fields=frozenset({"batch_norm"})))
        home = _home(project, place, wanted, joined, target)
        homes.update(dict.fromkeys(place.files, home))
    return homes


def _names_of(edits: Iterable[Edit]) -> set[str]:
    parts = [part for edit in edits for part in edit.code]
    return {
        p.name.removeprefix("helper.") for p in parts if isinstance(p, Ref) and p.name.startswith("helper.")
    }


def _home(
    project: Project, place: HelperPlace, names: frozenset[str], needs: Needs, target: Path
) -> HelperHome:
    relative = frozenset(p for p in place.files if _imports_relatively(project, p, place))
    newlines = Counter(project.modules[path].source.newline for path in place.files)
    newline, style = newlines.most_common(1)[0][0], style_of(project, target)
    number, stem = 1, project.options.helper_module
    while True:
        path = (place.folder / f"{stem}.py").as_posix()
        home = HelperHome(path, place.package, relative, names, needs, newline, style)
        if not (target / path).exists() or _can_serve(home, (target / path).read_bytes()):
            return home
        number += 1
        stem = f"{project.options.helper_module}_{number}"


def _can_serve(home: HelperHome, data: bytes) -> bool:
    """Whether a file that stands there is ours, and untouched or complete enough."""
    try:
        text = _text(data)
        names, needs = _already_there(text)
    except (UnicodeDecodeError, SyntaxError):
        return False
    if not is_written(ast.parse(text)):
        return False
    untouched = assemble(frozenset(names), needs, home.style) == text
    return _is_enough(home, names, needs) or untouched or _only_lacks_parts(home, names, needs)


def _only_lacks_parts(home: HelperHome, names: set[str], needs: Needs) -> bool:
    """Whether nothing that stands in an edited module would have to change, only to be added to."""
    has_keywords = "shard_model" not in names or home.needs.keywords <= needs.keywords
    has_fields = "MixedPrecision" not in names or home.needs.fields <= needs.fields
    return has_keywords and has_fields


def _is_enough(home: HelperHome, names: set[str], needs: Needs) -> bool:
    there = frozenset(names)
    return assemble(home.names | there, home.needs.joined(needs)) == assemble(there, needs)


def _imports_relatively(project: Project, path: str, place: HelperPlace) -> bool:
    """Whether a file of the helper module's package imports the package's modules by dots, and only so."""
    top = PurePosixPath(*place.folder.parts[: len(place.folder.parts) - place.package.count(".")])
    if not place.package or not PurePosixPath(path).is_relative_to(top):
        return False
    nodes = [n for n in project.modules[path].nodes(ast.ImportFrom) if isinstance(n, ast.ImportFrom)]
    absolute = [n for n in nodes if n.level == 0 and project.index.locate(n.module or "", path)]
    return any(node.level for node in nodes) and not absolute


def helper_source(home: HelperHome, before: bytes | None) -> bytes:
    """The contents of a helper module; what an earlier run wrote there, and what a person changed, stays."""
    if before is None:
        return _encoded(assemble(home.names, home.needs, home.style), home.newline)
    names, needs = _already_there(_text(before))
    if _is_enough(home, names, needs):
        return before
    newline = "\r\n" if b"\r\n" in before else "\n"
    whole = assemble(home.names | names, home.needs.joined(needs), home.style)
    is_untouched = assemble(frozenset(names), needs, home.style) == _text(before)
    return _encoded(whole if is_untouched else with_additions(_text(before), whole), newline)


def _encoded(text: str, newline: str) -> bytes:
    return text.replace("\n", newline).encode()


def _text(data: bytes) -> str:
    return data.decode().replace("\r\n", "\n")


def _already_there(text: str) -> tuple[set[str], Needs]:
    """Names and keywords of a helper module written earlier."""
    tree = ast.parse(text)
    names = {n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)} & KNOWN_NAMES
    keywords: set[str] = set()
    fields: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "shard_model":
            keywords = {a.arg for a in node.args.kwonlyargs}
            if node.args.kwarg is not None:
                keywords.add("**")
        if isinstance(node, ast.ClassDef) and node.name == "MixedPrecision":
            fields = {
                s.target.id
                for s in node.body
                if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)
            }
            fields |= {"_mutable"} if "frozen=True" not in ast.unparse(node.decorator_list[0]) else set()
    return names, Needs(frozenset(keywords), frozenset(fields))
