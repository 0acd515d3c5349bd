"""The helper module written into a repository: where it stands, and its text with only the parts used."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from codemods.analysis.index import module_parts
from codemods.editing.helper_assembly import KNOWN_NAMES, Needs, assemble
from codemods.editing.helper_home import common_folder, package_for_all
from codemods.model import Edit, Ref
from codemods.project import Project

MARK = "Written by fsdp-migrate"


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
        torch: the oldest torch it must run on.
    """

    path: str
    package: str
    relative: frozenset[str]
    names: frozenset[str]
    needs: Needs
    newline: str
    torch: tuple[int, int]

    def import_name(self, path: str) -> str:
        """What a file imports it as."""
        stem = PurePosixPath(self.path).stem
        if path in self.relative:
            up = len(PurePosixPath(path).parent.parts) - len(PurePosixPath(self.path).parent.parts)
            return "." * (up + 1) + stem
        return f"{self.package}.{stem}" if self.package else stem


def helper_homes(
    project: Project, edits: dict[str, list[Edit]], needs: dict[str, Needs], target: Path
) -> dict[str, HelperHome]:
    """File -> its helper module, for the files whose edits use one."""
    names = {path: _names_of(found) for path, found in edits.items()}
    homes: dict[str, HelperHome] = {}
    groups: dict[str, list[str]] = {}
    for path in sorted(path for path in edits if names[path]):
        groups.setdefault(project.group(path), []).append(path)
    for group in groups.values():
        wanted = frozenset().union(*(names[path] for path in group))
        joined = Needs()
        for path in group:
            joined = joined.joined(needs.get(path, Needs()))
        if "batch_norm" in project.mentions:
            joined = joined.joined(Needs(fields=frozenset({"batch_norm"})))
        home = _home(project, group, wanted, joined, target)
        homes.update(dict.fromkeys(group, home))
    return homes


def _names_of(edits: Iterable[Edit]) -> set[str]:
    parts = [part for edit in edits for part in edit.code]
    return {
        p.name.removeprefix("helper.") for p in parts if isinstance(p, Ref) and p.name.startswith("helper.")
    }


def _home(
    project: Project, group: list[str], names: frozenset[str], needs: Needs, target: Path
) -> HelperHome:
    folder = common_folder([PurePosixPath(path).parent for path in group])
    package = _package_of(project, folder, target)
    if not package and (shared := package_for_all(project, group, folder)) is not None:
        folder, package = shared
    relative = frozenset(
        p
        for p in group
        if package and PurePosixPath(p).is_relative_to(folder) and _imports_relatively(project, p)
    )
    newline = Counter(project.modules[path].source.newline for path in group).most_common(1)[0][0]
    number, stem = 1, project.options.helper_module
    while True:
        path = (folder / f"{stem}.py").as_posix()
        home = HelperHome(path, package, relative, names, needs, newline, project.options.target_torch)
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
    if MARK not in (ast.get_docstring(ast.parse(text)) or ""):
        return False
    return _is_enough(home, names, needs) or assemble(frozenset(names), needs, home.torch) == text


def _is_enough(home: HelperHome, names: set[str], needs: Needs) -> bool:
    there = frozenset(names)
    return assemble(home.names | there, home.needs.joined(needs)) == assemble(there, needs)


def _package_of(project: Project, folder: PurePosixPath, target: Path) -> str:
    """The dotted name other files import that folder's modules under; packages by their `__init__.py`
    otherwise."""
    seen: Counter[str] = Counter()
    for path, module in project.modules.items():
        for node in module.nodes(ast.ImportFrom):
            assert isinstance(node, ast.ImportFrom)
            found = project.index.locate(node.module, path) if node.module and not node.level else None
            if found is not None and node.module is not None:
                parts = module_parts(found)
                if tuple(parts[: len(folder.parts)]) == folder.parts and len(parts) > len(folder.parts):
                    above = node.module.split(".")[: len(folder.parts) - len(parts)]
                    seen[".".join(above)] += 1
    if seen:
        return seen.most_common(1)[0][0]
    names: list[str] = []
    current = folder
    while current.parts and (target / current / "__init__.py").exists():
        names.insert(0, current.name)
        current = current.parent
    return ".".join(names)


def _imports_relatively(project: Project, path: str) -> bool:
    module = project.modules[path]
    levels = [node.level for node in module.nodes(ast.ImportFrom) if isinstance(node, ast.ImportFrom)]
    own = [
        node
        for node in module.nodes(ast.ImportFrom)
        if isinstance(node, ast.ImportFrom)
        and node.level == 0
        and project.index.locate(node.module or "", path)
    ]
    return any(levels) and not own


def helper_source(home: HelperHome, before: bytes | None) -> bytes:
    """The contents of a helper module; what an earlier run wrote there, and what a person changed, stays."""
    if before is None:
        return _encoded(assemble(home.names, home.needs, home.torch), home.newline)
    names, needs = _already_there(_text(before))
    if _is_enough(home, names, needs):
        return before
    newline = "\r\n" if b"\r\n" in before else "\n"
    return _encoded(assemble(home.names | names, home.needs.joined(needs), home.torch), newline)


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
