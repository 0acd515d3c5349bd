"""Small projects made of strings, for tests of one part of the rewriter."""

from __future__ import annotations

import ast
from pathlib import Path
from textwrap import dedent

from codemods.analysis.collect import read_project
from codemods.analysis.module import Module
from codemods.model import Options, Rewrite
from codemods.plan import plan_rewrite
from codemods.project import Project
from codemods.sources import find_files


def children() -> set[str]:
    """The processes that this one has started and not waited for; none where the system does not tell."""
    return {pid for told in Path("/proc/self/task").glob("*/children") for pid in told.read_text().split()}


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text).lstrip("\n"))


def project_of(folder: Path, files: dict[str, str]) -> Project:
    write(folder, files)
    project, skipped = read_project(folder, find_files(folder, [folder]), Options())
    assert skipped == {}
    return project


def rewrite_of(
    folder: Path, files: dict[str, str], options: Options | None = None
) -> tuple[Rewrite, dict[str, str]]:
    """The plan for these files, and the text of every changed file."""
    write(folder, files)
    done = plan_rewrite(folder, find_files(folder, [folder]), options or Options())
    return done, {change.path: change.after.decode() for change in done.changes}


def marked(module: Module, text: str) -> ast.expr:
    """The last expression of a module whose source is `text`."""
    found = [
        node
        for node in (*module.table.parents,)
        if isinstance(node, ast.expr)
        and module.code(node) == text
        and not isinstance(getattr(node, "ctx", None), ast.Store)
    ]
    assert found, f"no expression {text!r} in {module.path}"
    return max(found, key=lambda node: (node.lineno, node.col_offset))
