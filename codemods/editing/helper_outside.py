"""Helper modules of the same repository that lie outside of what is rewritten, when that is a part of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from codemods.analysis.reach import reached
from codemods.editing.helper_places import HelperPlace, Roots, absolute_imports, is_helper, packages_around
from codemods.sources import SKIPPED_DIRECTORIES


@dataclass(slots=True)
class OutsideHelpers:
    """Those of the repository around the target; it is searched when the first file asks.

    Attributes:
        name: what helper modules are called, without `.py`.
    """

    roots: Roots
    name: str
    _found: list[tuple[Path, HelperPlace]] | None = field(default=None)

    def of(self, path: str) -> HelperPlace | None:
        """The one that a file can import: it has the same root, or the file imports from its package."""
        if self._found is None:
            self._found = list(_search(self.roots.target, self.name))
        if not self._found:
            return None
        modules = self.roots.project.modules
        known = [p for p in reached([path], self.roots.project.imports) if p in modules]
        heads = {name.partition(".")[0] for p in known for name in absolute_imports(modules[p])}
        own = {self.roots.folder_of(root) for root in self.roots.reached_from(path)}
        for root, place in self._found:
            if root in own or place.package.partition(".")[0] in heads:
                return place
        return None


def _search(target: Path, name: str) -> Iterator[tuple[Path, HelperPlace]]:
    """Every helper module of the repository around a target, with the folder that it is imported from."""
    top = _repository(target)
    if top is None or top == target:
        return
    for folder, names, files in os.walk(top):
        here = Path(folder)
        names[:] = sorted(n for n in names if n not in SKIPPED_DIRECTORIES and here / n != target)
        for file in sorted(files):
            if file.startswith(name) and file.endswith(".py") and _is_helper(here / file):
                around = packages_around(here)
                root = here.parents[len(around) - 1] if around else here
                place = PurePosixPath(Path(os.path.relpath(here, target)).as_posix())
                yield root, HelperPlace(place, ".".join(around), (), file.removesuffix(".py"))


def _is_helper(path: Path) -> bool:
    try:
        return is_helper(path.read_bytes())
    except OSError:
        return False


def _repository(target: Path) -> Path | None:
    """The git repository around a folder, or else the folder of the package that it is part of."""
    for folder in (target, *target.parents):
        if (folder / ".git").exists():
            return folder
    around = packages_around(target)
    return target.parents[len(around) - 1] if around else None
