"""Where a helper module can stand so that every file that uses it finds it."""

from __future__ import annotations

import ast
from pathlib import PurePosixPath

from codemods.analysis.index import module_parts
from codemods.analysis.module import Module
from codemods.project import Project


def common_folder(folders: list[PurePosixPath]) -> PurePosixPath:
    """The deepest folder that holds all of these."""
    parts = folders[0].parts
    for folder in folders[1:]:
        same = 0
        while same < min(len(parts), len(folder.parts)) and parts[same] == folder.parts[same]:
            same += 1
        parts = parts[:same]
    return PurePosixPath(*parts)


def package_for_all(
    project: Project, group: list[str], folder: PurePosixPath
) -> tuple[PurePosixPath, str] | None:
    """A folder within a package that each of these files lies in or imports, and its dotted name.

    A bare module in the folder above is found from there only: by its scripts, and not by those of other
    folders, nor by scripts that lie in the package and import it by its name, as an installed one.
    """
    named = {path: _packages_named(project, project.modules[path], folder) for path in group}
    for package in sorted({name for names in named.values() for name in names}):
        home = folder / package
        inside = [path for path in group if PurePosixPath(path).is_relative_to(home)]
        outside = [path for path in group if path not in inside]
        is_needed = any(PurePosixPath(path).parent != folder for path in outside) or any(
            package in named[path] and _is_script(project.modules[path]) for path in inside
        )
        if inside and is_needed and all(package in named[path] for path in outside):
            common = common_folder([PurePosixPath(path).parent for path in inside])
            return common, ".".join((package, *common.relative_to(home).parts))
    return None


def _packages_named(project: Project, module: Module, folder: PurePosixPath) -> set[str]:
    """Packages directly in a folder from which a file imports by their full names."""
    found: set[str] = set()
    for node in module.nodes(ast.ImportFrom):
        assert isinstance(node, ast.ImportFrom)
        path = project.index.locate(node.module, module.path) if node.module and not node.level else None
        if path is None or node.module is None:
            continue
        dotted = node.module.split(".")
        parts = module_parts(path)
        if tuple(parts[-len(dotted) :]) == tuple(dotted) and tuple(parts[: -len(dotted)]) == folder.parts:
            found.add(dotted[0])
    return found


def _is_script(module: Module) -> bool:
    return "__name__" in module.text and any(
        isinstance(statement, ast.If) and "__main__" in ast.dump(statement.test)
        for statement in module.tree.body
    )
