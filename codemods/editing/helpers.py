"""The helper module written into a repository: where it stands, and its text with only the parts used."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from codemods.editing.helper_assembly import Needs, assemble
from codemods.model import Edit, Ref
from codemods.project import Project


@dataclass(frozen=True, slots=True)
class HelperHome:
    """One helper module.

    Attributes:
        path: the file, relative to the target.
        members: the files that use it.
        package: dotted name of the package it lies in; empty at a source root.
    """

    path: str
    members: frozenset[str]
    package: str
    relative: frozenset[str]

    def import_name(self, path: str) -> str:
        """What a file imports it as."""
        stem = PurePosixPath(self.path).stem
        if path in self.relative:
            up = len(PurePosixPath(path).parent.parts) - len(PurePosixPath(self.path).parent.parts)
            return "." * (up + 1) + stem
        return f"{self.package}.{stem}" if self.package else stem


def helper_homes(project: Project, edits: dict[str, list[Edit]], target: Path) -> dict[str, HelperHome]:
    """File -> its helper module, for the files whose edits use one."""
    users = [path for path, found in edits.items() if any(_uses_helper(edit) for edit in found)]
    homes: dict[str, HelperHome] = {}
    for group in _groups(project, users):
        home = _home(project, group, target)
        homes.update(dict.fromkeys(group, home))
    return homes


def _uses_helper(edit: Edit) -> bool:
    return any(isinstance(part, Ref) and part.name.startswith("helper.") for part in edit.code)


def _groups(project: Project, users: list[str]) -> list[list[str]]:
    """Files that belong together because one imports the other, or a third imports both."""
    leader = {path: path for path in project.modules}

    def find(path: str) -> str:
        while leader[path] != path:
            path = leader[path]
        return path

    for path in project.modules:
        for other in project.imports.get(path, ()):
            if other in leader:
                leader[find(path)] = find(other)
    groups: dict[str, list[str]] = {}
    for path in sorted(users):
        groups.setdefault(find(path), []).append(path)
    return list(groups.values())


def _home(project: Project, group: list[str], target: Path) -> HelperHome:
    folder = _common_folder([PurePosixPath(path).parent for path in group])
    name = project.options.helper_module
    path = (folder / f"{name}.py").as_posix()
    package = _package_of(project, folder, target)
    relative = frozenset(p for p in group if package and _imports_relatively(project, p))
    return HelperHome(path, frozenset(group), package, relative)


def _common_folder(folders: list[PurePosixPath]) -> PurePosixPath:
    parts = folders[0].parts
    for folder in folders[1:]:
        same = 0
        while same < min(len(parts), len(folder.parts)) and parts[same] == folder.parts[same]:
            same += 1
        parts = parts[:same]
    return PurePosixPath(*parts)


def _package_of(project: Project, folder: PurePosixPath, target: Path) -> str:
    """The dotted name other files import that folder's modules under."""
    names: list[str] = []
    current = folder
    while current.parts and (target / current / "__init__.py").exists():
        names.insert(0, current.name)
        current = current.parent
    if names:
        return ".".join(names)
    # No `__init__.py`: a namespace package, if someone imports modules of this folder by a dotted name.
    for path, module in project.modules.items():
        for node in module.nodes(ast.ImportFrom):
            assert isinstance(node, ast.ImportFrom)
            found = project.index.locate(node.module, path) if node.module and not node.level else None
            if (
                found is not None
                and PurePosixPath(found).parent == folder
                and node.module
                and "." in node.module
            ):
                return node.module.rpartition(".")[0]
    return ""


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


def helper_source(names: Iterable[str], needs: Needs, before: bytes | None) -> str:
    """The text of a helper module.

    Args:
        names: its functions and types that the repository's files name.
        needs: keywords and fields in use.
        before: what the file holds now; what an earlier run wrote there stays.
    """
    wanted = set(names)
    if before is not None:
        earlier, earlier_needs = _already_there(before.decode())
        wanted |= earlier
        needs = needs.joined(earlier_needs)
    return assemble(frozenset(wanted), needs)


def _already_there(text: str) -> tuple[set[str], Needs]:
    """Names and keywords of a helper module written earlier."""
    tree = ast.parse(text)
    names = {n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)}
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
