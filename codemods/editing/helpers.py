"""The helper module written into a repository: where it stands, and its text with only the parts used."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from codemods.editing.helper_additions import with_additions
from codemods.editing.helper_assembly import Needs, assemble
from codemods.editing.helper_draft import FIELDS, KEYWORDS
from codemods.editing.helper_layout import Style
from codemods.editing.helper_outside import OutsideHelpers
from codemods.editing.helper_parts import KNOWN_NAMES
from codemods.editing.helper_places import (
    HelperPlace,
    Roots,
    earlier_helper,
    helper_places,
    is_helper,
    is_written,
)
from codemods.editing.helper_style import style_of
from codemods.editing.spelling import HELPER_IMPORT
from codemods.model import Edit, Ref
from codemods.project import Project


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

    def extended(self, names: frozenset[str], needs: Needs) -> HelperHome:
        """The same module with more in it."""
        return replace(self, names=self.names | names, needs=self.needs.joined(needs))

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
) -> tuple[dict[str, HelperHome], dict[str, str]]:
    """Where the files whose edits use a helper module find it.

    Returns:
        File -> its helper module, and file -> why the one that it would have to share does not serve.
    """
    names = {path: frozenset(_names_of(found)) for path, found in edits.items()}
    homes: dict[str, HelperHome] = {}
    unserved: dict[str, str] = {}
    earlier = {path: module.text for path, module in project.modules.items() if is_written(module.tree)}
    fields = {path: needs[path].fields for path in edits if path in needs}
    fields |= {path: _already_there(_unix(text))[1].fields for path, text in earlier.items()}
    users = [path for path in edits if names[path]]
    for place in _places(project, users, earlier, target):
        home = _home(project, place, target)
        before = (target / home.path).read_bytes() if (target / home.path).exists() else None
        for path, wanted in _wanted(project, place, needs, fields).items():
            alone = replace(home, names=names[path], needs=wanted)
            after, edited = helper_source(alone, before)
            if edited:
                unserved[path] = _edited(home, edited)
            elif place.is_outside and after != before:
                unserved[path] = _incomplete(home)
            else:
                home = home.extended(names[path], wanted)
        homes.update({path: home for path in place.files if path not in unserved})
    return homes, unserved


def _places(
    project: Project, users: list[str], earlier: dict[str, str], target: Path
) -> Iterator[HelperPlace]:
    """The helper modules outside of the target that files share, and those within it."""
    roots = Roots(project, target)
    outside = OutsideHelpers(roots, project.options.helper_module)
    shared: dict[HelperPlace, list[str]] = {}
    for path in users:
        if earlier_helper(project, path, earlier, roots) is None and (found := outside.of(path)):
            shared.setdefault(found, []).append(path)
    for place, files in shared.items():
        yield replace(place, files=tuple(files))
    left = [path for path in users if not any(path in files for files in shared.values())]
    yield from helper_places(project, left, earlier, roots)


def _wanted(
    project: Project, place: HelperPlace, needs: dict[str, Needs], fields: dict[str, frozenset[str]]
) -> dict[str, Needs]:
    """File -> what it needs of the helper module."""
    own = {path: needs.get(path, Needs()) for path in place.files}
    more: frozenset[str] = frozenset()
    if any(found.keywords & {"mixed_precision", "**"} for found in own.values()):
        more |= _given(project, place, fields)
    if "batch_norm" in project.mentions:
        more |= {"batch_norm"}
    return {path: found.joined(Needs(fields=more)) for path, found in own.items()}


def _edited(home: HelperHome, edited: list[str]) -> str:
    shown = " and ".join(f"`{name}`" for name in edited)
    them = "it" if len(edited) == 1 else "them"
    return (
        f"it needs more of {shown} than {home.path} has, where a person has changed {them} since; a helper "
        "module beside it would have types of its own, which the rest of the program does not use"
    )


def _incomplete(home: HelperHome) -> str:
    return (
        f"it needs more than {home.path} has, which it has to share and which lies outside of what is "
        "rewritten; rewrite the whole repository"
    )


def _given(project: Project, place: HelperPlace, fields: dict[str, frozenset[str]]) -> frozenset[str]:
    """Fields of the precisions that may reach a helper module: those made in the programs of its files."""
    users = [*place.files, (place.folder / f"{place.there}.py").as_posix()]
    found: set[str] = set()
    for path, some in fields.items():
        if not some & FIELDS <= found and any(project.is_one_program(path, user) for user in users):
            found |= some & FIELDS
    return frozenset(found)


def _names_of(edits: Iterable[Edit]) -> set[str]:
    refs = [part.name for edit in edits for part in edit.code if isinstance(part, Ref)]
    names = (name.removeprefix(HELPER_IMPORT) for name in refs if name.startswith("helper."))
    return {name.removeprefix("helper.") for name in names}


def _home(project: Project, place: HelperPlace, target: Path) -> HelperHome:
    """The helper module of a place, with nothing in it yet."""
    relative = frozenset(p for p in place.files if _imports_relatively(project, p, place))
    newlines = Counter(project.modules[path].source.newline for path in place.files)
    newline, style = newlines.most_common(1)[0][0], style_of(project, target)
    number, stem = 1, place.there or project.options.helper_module
    while True:
        path = (place.folder / f"{stem}.py").as_posix()
        home = HelperHome(path, place.package, relative, frozenset(), Needs(), newline, style)
        if not (target / path).exists() or is_helper((target / path).read_bytes()):
            return home
        number += 1
        stem = f"{project.options.helper_module}_{number}"


def _is_enough(home: HelperHome, names: set[str], needs: Needs) -> bool:
    there = frozenset(names)
    return assemble(home.names | there, home.needs.joined(needs)) == assemble(there, needs)


def _imports_relatively(project: Project, path: str, place: HelperPlace) -> bool:
    """Whether a file of the helper module's package imports the package's modules by dots, and only so."""
    top = PurePosixPath(*place.folder.parts[: max(0, len(place.folder.parts) - place.package.count("."))])
    if place.is_outside or not place.package or not PurePosixPath(path).is_relative_to(top):
        return False
    nodes = [n for n in project.modules[path].nodes(ast.ImportFrom) if isinstance(n, ast.ImportFrom)]
    absolute = [n for n in nodes if n.level == 0 and project.index.locate(n.module or "", path)]
    return any(node.level for node in nodes) and not absolute


def helper_source(home: HelperHome, before: bytes | None) -> tuple[bytes, list[str]]:
    """The contents of a helper module; what an earlier run wrote there, and what a person changed, stays.

    Returns:
        The contents, and the definitions that do not serve although a person has edited them.
    """
    if before is None:
        return _encoded(assemble(home.names, home.needs, home.style), home.newline), []
    text = _text(before)
    names, needs = _already_there(text)
    if _is_enough(home, names, needs):
        return before, []
    newline = "\r\n" if b"\r\n" in before else "\n"
    written = assemble(frozenset(names), needs, home.style)
    whole = assemble(home.names | names, home.needs.joined(needs), home.style)
    if written == text:
        return _encoded(whole, newline), []
    merged, edited = with_additions(text, written, whole)
    return _encoded(merged, newline), edited


def _encoded(text: str, newline: str) -> bytes:
    return text.replace("\n", newline).encode()


def _text(data: bytes) -> str:
    return _unix(data.decode())


def _unix(text: str) -> str:
    return text.replace("\r\n", "\n")


def _already_there(text: str) -> tuple[set[str], Needs]:
    """Names and keywords of a helper module written earlier."""
    tree = ast.parse(text)
    names = {n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)} & KNOWN_NAMES
    keywords: set[str] = set()
    parts: set[str] = set()
    fields: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "shard_model":
            keywords = {a.arg for a in node.args.kwonlyargs}
            if node.args.kwarg is not None:
                keywords.add("**")
        if isinstance(node, ast.FunctionDef) and node.name == "leave_casting_to":
            parts.add("parts")
        if isinstance(node, ast.FunctionDef) and node.name == "own_options":
            strings = {n.value for n in ast.walk(node) if isinstance(n, ast.Constant)}
            parts |= {f"own:{keyword}" for keyword in KEYWORDS if keyword in strings}
        if isinstance(node, ast.ClassDef) and node.name == "MixedPrecision":
            fields = {
                s.target.id
                for s in node.body
                if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)
            }
            fields |= {"_mutable"} if "frozen=True" not in ast.unparse(node.decorator_list[0]) else set()
    return names, Needs(frozenset(keywords | parts), frozenset(fields))
