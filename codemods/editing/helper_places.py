"""Where a helper module can stand so that every file that uses it can import it, as the repository runs it.

A file finds modules below its own root (the folder above its outermost package; a script's own folder) and
below the roots of whatever it imports, or of what all its importers do, since those are on the path of the
same process. A script in a package that imports its neighbours by their bare names runs from its own folder.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from codemods.analysis.index import module_parts
from codemods.analysis.module import Module
from codemods.analysis.reach import reached
from codemods.project import Project

_PACKAGING = ("pyproject.toml", "setup.py", "setup.cfg")


_MARK = "Written by fsdp-migrate"


def is_written(tree: ast.Module) -> bool:
    """Whether a file is a helper module that an earlier run wrote, edited since or not."""
    return _MARK in (ast.get_docstring(tree) or "")


def is_helper(data: bytes) -> bool:
    """The same of a file's contents; false where they are no Python."""
    try:
        return is_written(ast.parse(data))
    except (SyntaxError, ValueError):
        return False


@dataclass(frozen=True, slots=True)
class HelperPlace:
    """A folder for a helper module.

    Attributes:
        folder: relative to the target.
        package: its dotted name, empty at a root.
        files: those that import the module.
        there: name of the helper module that an earlier run wrote there; empty where there is none.
    """

    folder: PurePosixPath
    package: str
    files: tuple[str, ...]
    there: str = ""

    @property
    def is_outside(self) -> bool:
        """Whether it lies outside of the target."""
        return ".." in self.folder.parts


@dataclass(slots=True)
class Roots:
    """The folders on the import path, as the repository's own imports show them.

    Attributes:
        around: the packages that the target itself is and lies in; its own root is then above them.
    """

    project: Project
    target: Path
    _seen: dict[str, Counter[PurePosixPath]] = field(default_factory=dict)
    _closures: dict[str, frozenset[PurePosixPath]] = field(default_factory=dict)
    _roots: dict[str, PurePosixPath] = field(default_factory=dict)
    _bare: set[str] = field(default_factory=set)

    around: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.around = packages_around(self.target)
        found = Counter(
            (file, name)
            for path, module in self.project.modules.items()
            for name in absolute_imports(module)
            if (file := self.project.index.locate(name, path)) is not None
        )
        for (file, name), times in found.items():
            own, parts = module_parts(file), name.split(".")
            if own[-len(parts) :] == parts:
                root = PurePosixPath(*own[: len(own) - len(parts)])
                for place in (file, *(p.as_posix() for p in PurePosixPath(file).parents)):
                    named = PurePosixPath(*own) if place == file else PurePosixPath(place)
                    if named.is_relative_to(root / parts[0]):
                        self._seen.setdefault(place, Counter())[root] += times
        if self._is_run_from_within(found):
            self.around = ()
        self._bare = {path for path, module in self.project.modules.items() if self._is_bare(path, module)}

    def _is_run_from_within(self, found: Iterable[tuple[str, str]]) -> bool:
        """Whether the target is on the import path itself, `__init__.py` in it or not: its files import one
        another from there, and none by the name of the package that it would be.

        Args:
            found: a file of the target, and the absolute name by which it is imported.
        """
        from_within = {name for file, name in found if list(module_parts(file)) == name.split(".")}
        if not self.around or _imports_of_the_target(self.project, self.around[0], from_within):
            return False
        return any(name.partition(".")[0] not in sys.stdlib_module_names for name in from_within)

    def _is_bare(self, path: str, module: Module) -> bool:
        """Whether a file imports its neighbours by their bare names, and nothing by its package's name."""
        folder = PurePosixPath(path).parent
        if not folder.parts or not (self.target / folder / "__init__.py").exists():
            return False
        found = {
            PurePosixPath(*module_parts(file)): name
            for name in absolute_imports(module)
            if (file := self.project.index.locate(name, path)) is not None
        }
        by_package = any(name.split(".")[0] in folder.parts for name in found.values())
        return not by_package and any(place == folder / name for place, name in found.items())

    def of(self, path: str) -> PurePosixPath:
        """The root a file is imported from, or its own folder, which is a script's."""
        if path not in self._roots:
            self._roots[path] = self._root_of(path)
        return self._roots[path]

    def _root_of(self, path: str) -> PurePosixPath:
        for place in (path, *(p.as_posix() for p in PurePosixPath(path).parents)):
            if place in self._seen:
                return self._seen[place].most_common(1)[0][0]
            if not (self.target / PurePosixPath(place).parent / "__init__.py").exists():
                break
        folder = PurePosixPath(path).parent
        if path in self._bare:
            return folder
        while folder.parts and (self.target / folder / "__init__.py").exists():
            folder = folder.parent
        return folder

    def folder_of(self, root: PurePosixPath) -> Path:
        """A root as a folder of this machine, which may be above the target."""
        if self.around and not root.parts:
            return self.target.parents[len(self.around) - 1]
        return self.target / root

    def package(self, folder: PurePosixPath, root: PurePosixPath) -> str:
        """The dotted name of a folder below a root."""
        around = () if root.parts else self.around
        return ".".join([*around, *folder.parts[len(root.parts) :]])

    def reached_from(self, path: str) -> frozenset[PurePosixPath]:
        """The roots of a file and of everything it imports, and those that all files reach which import it:
        settings beside a script are read where the script's library is found."""
        takers = [self._own(taker) for taker in sorted(self.project.links.shelf.importers.get(path, ()))]
        return self._own(path) | (frozenset.intersection(*takers) if takers else frozenset())

    def _own(self, path: str) -> frozenset[PurePosixPath]:
        """The roots of a file and of everything it imports."""
        if path not in self._closures:
            seen = reached([path], self.project.imports)
            self._closures[path] = frozenset(self.of(other) for other in seen)
        return self._closures[path]


def _imports_of_the_target(project: Project, package: str, from_within: Container[str]) -> bool:
    """Whether a file imports from the target as a package of that name, or by a relative import."""
    for path, module in project.modules.items():
        levels = (n.level for n in module.nodes(ast.ImportFrom) if isinstance(n, ast.ImportFrom))
        if any(level > path.count("/") for level in levels):
            return True
        names = {name for name in absolute_imports(module) if name.partition(".")[0] == package}
        if any(name not in from_within and name.rpartition(".")[0] not in from_within for name in names):
            return True
    return False


def packages_around(folder: Path) -> tuple[str, ...]:
    """The names of the packages that a folder is and lies in, from the outermost; none where it is none."""
    names: list[str] = []
    while (folder / "__init__.py").exists():
        names.insert(0, folder.name)
        folder = folder.parent
    return tuple(names)


def absolute_imports(module: Module) -> Iterable[str]:
    """Every dotted name that a module may import from a root."""
    for node in module.nodes(ast.ImportFrom):
        assert isinstance(node, ast.ImportFrom)
        if node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
    for node in module.nodes(ast.Import):
        assert isinstance(node, ast.Import)
        yield from (alias.name for alias in node.names)


def helper_places(
    project: Project, files: Iterable[str], earlier: Iterable[str], roots: Roots
) -> list[HelperPlace]:
    """As few places as possible, so that each file can import the module of one of them.

    Args:
        files: those that use a helper module.
        earlier: the helper modules that stand there. Files that can import one share its types.
    """
    left = sorted(files)
    using: dict[str, list[str]] = {}
    for path in left:
        if helper := earlier_helper(project, path, earlier, roots):
            using.setdefault(helper, []).append(path)
    places = []
    for helper, found in sorted(using.items()):
        at, root = PurePosixPath(helper), roots.of(helper)
        places.append(HelperPlace(at.parent, roots.package(at.parent, root), tuple(found), at.stem))
        left = [path for path in left if path not in found]
    while left:
        counts = Counter(root for path in left for root in roots.reached_from(path))
        first = roots.reached_from(left[0])
        root = max(first, key=lambda r: (counts[r], -len(r.parts), r.as_posix()))
        chosen = [path for path in left if root in roots.reached_from(path)]
        places.append(_place(chosen, root, roots))
        left = [path for path in left if path not in chosen]
    return places


def earlier_helper(project: Project, path: str, earlier: Iterable[str], roots: Roots) -> str | None:
    """The helper module that a file can import: one that its own imports lead to, or else the nearest."""
    own = PurePosixPath(path).parent
    known = reached([path], project.imports)

    def distance(helper: str) -> tuple[bool, int, str]:
        folder = common_folder([own, PurePosixPath(helper).parent])
        return helper not in known, -len(folder.parts), helper

    found = [helper for helper in earlier if roots.of(helper) in roots.reached_from(path)]
    return min(found, key=distance, default=None)


def _place(files: list[str], root: PurePosixPath, roots: Roots) -> HelperPlace:
    """The innermost folder below a root that holds all its files; a package, where those are installed."""
    depth = len(root.parts)
    tops = {PurePosixPath(path).parts[depth] for path in files if roots.of(path) == root}
    below = [path for path in files if PurePosixPath(path).is_relative_to(root)]
    # A script in a package that it imports by name is a file of that package too.
    own = [PurePosixPath(path).parent for path in below if PurePosixPath(path).parts[depth] in tops]
    folder = common_folder(own) if own else root
    if folder == root and not (roots.around and not root.parts):
        packages = Counter(f.parts[depth] for f in own if len(f.parts) > depth)
        if packages and _is_installed(root, roots.target):
            folder = root / max(sorted(packages), key=lambda name: packages[name])
    return HelperPlace(folder, roots.package(folder, root), tuple(files))


def _is_installed(root: PurePosixPath, target: Path) -> bool:
    """Whether packaging lies beside the packages of a root, or above, as in a `src` layout."""
    folders = [target / root, *([target / root.parent] if root.parts else [])]
    return any((folder / name).is_file() for folder in folders for name in _PACKAGING[:2])


def common_folder(folders: list[PurePosixPath]) -> PurePosixPath:
    """The innermost folder that holds all of these."""
    parts = folders[0].parts
    for folder in folders[1:]:
        same = 0
        while same < min(len(parts), len(folder.parts)) and parts[same] == folder.parts[same]:
            same += 1
        parts = parts[:same]
    return PurePosixPath(*parts)
