"""From accepted findings to new file contents, helper modules included."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from codemods.analysis.exports import names_taken
from codemods.analysis.module import Module
from codemods.editing import todo
from codemods.editing.apply import apply_edits
from codemods.editing.dead_functions import dead_functions, without_functions
from codemods.editing.dead_names import without_dead_names
from codemods.editing.drafts import draft_of
from codemods.editing.helper_assembly import Needs
from codemods.editing.helpers import HelperHome, helper_homes, helper_source
from codemods.editing.imports import settle_imports
from codemods.editing.kept_comments import kept_comments
from codemods.editing.layout import DEFAULT
from codemods.editing.line_join import join_short_lines
from codemods.editing.line_wrap import wrap_long_lines
from codemods.editing.quotes import in_other_quotes
from codemods.editing.spelling import Spelling
from codemods.editing.undefined import check_concrete, names_left_undefined
from codemods.model import Edit, FileChange, Finding, Reported, Span
from codemods.processes import mapped
from codemods.project import Project

_MANY_FILES = 8
"""Changed files from which on a second process is worth its start."""


def file_changes(
    project: Project, reported: list[Reported], accepted: list[Finding], target: Path, *, jobs: int = 1
) -> tuple[list[FileChange], dict[str, str], dict[str, dict[str, Span]]]:
    """The new contents of every changed file.

    Args:
        jobs: processes that share the work.

    Returns:
        The changes, file -> why it has to be left alone, and file -> functions that went with their last
        call.
    """
    edits: dict[str, list[Edit]] = {}
    needs: dict[str, Needs] = {}
    for finding in accepted:
        for edit in finding.edits:
            edits.setdefault(edit.path, []).append(edit)
            needs[edit.path] = needs.get(edit.path, Needs()).joined(Needs.of(finding.needs))
    for edit in todo.comments_for(project, reported):
        edits.setdefault(edit.path, []).append(edit)
    for path in project.dropped.texts if project.dropped is not None else ():
        edits.setdefault(path, [])  # shortened already
    homes, unserved = helper_homes(project, edits, needs, target)
    for path in unserved:
        del edits[path]
    texts: dict[str, tuple[str, Spelling]] = {}
    for path, wanted in edits.items():
        module = project.modules[path]
        helper = homes[path].import_name(path) if path in homes else ""
        width, oldest = project.line_length or DEFAULT, project.options.target_torch
        spelling = Spelling(module, project.index, helper, width, oldest)
        wanted = in_other_quotes(module, [*kept_comments(module, wanted), *wanted])
        texts[path] = (apply_edits(module.text, wanted, spelling.spell, module.source.newline), spelling)
    dead = dead_functions(project, edits, {path: text for path, (text, _) in texts.items()})
    for path, gone in dead.items():
        text, spelling = texts[path]
        texts[path] = (without_functions(text, gone), spelling)
    changes, broken = _settled(project, texts, jobs)
    used = {c.path: _imported(c, homes[c.path]) for c in changes if c.path in homes}
    changes += _helper_changes([(homes[path], names) for path, names in used.items()], target)
    return changes, broken | unserved, dead


def _settled(
    project: Project, texts: dict[str, tuple[str, Spelling]], jobs: int
) -> tuple[list[FileChange], dict[str, str]]:
    broken: dict[str, str] = {}
    drafts: dict[str, Module] = {}
    for path, (text, _) in sorted(texts.items()):
        try:
            drafts[path] = draft_of(project.as_it_is(path), text)
        except SyntaxError as error:
            broken[path] = f"its rewritten form would be no valid Python ({error})"
    exported = _exports(project, drafts)

    def settle(path: str) -> FileChange | str | None:
        is_exported = partial(_is_exported, exported, path)
        return _change(project, path, drafts[path], texts[path][1], is_exported)

    paths = list(drafts)
    done = mapped(settle, paths, jobs if len(paths) >= _MANY_FILES else 1)
    broken |= {path: why for path, why in zip(paths, done, strict=True) if isinstance(why, str)}
    return [change for change in done if isinstance(change, FileChange)], broken


def _change(
    project: Project, path: str, draft: Module, spelling: Spelling, is_exported: Callable[[str], bool]
) -> FileChange | str | None:
    """The change of a file, or why it has to be left alone; None where nothing changes."""
    module = project.as_it_is(path)
    try:
        new = _final_text(project, module, draft, spelling, is_exported)
        encoded = module.source.encoded(new)
        lost = _checked(module.text, new, path) if new != module.text else []
    except (SyntaxError, UnicodeEncodeError) as error:
        return f"its rewritten form would be no valid Python ({error})"
    if lost:
        return f"its rewritten form would be no valid Python (nothing would define {', '.join(lost)} in it)"
    return FileChange(path, module.source.data, encoded) if encoded != module.source.data else None


def _final_text(
    project: Project, module: Module, draft: Module, spelling: Spelling, is_exported: Callable[[str], bool]
) -> str:
    """The draft without what nothing uses any more, with its imports, broken into lines.

    Args:
        module: the file as it was.
        draft: with the edits done, and nothing else.

    Raises:
        SyntaxError: what came out is no valid Python.
    """
    new = settle_imports(module, without_dead_names(module, draft), spelling, is_exported)
    if not module.text.startswith(("\n", "\r")):
        new = new.lstrip("\r\n")  # imports that stood at the top may be gone
    width = project.line_length or DEFAULT
    new = join_short_lines(module.text, new, width)
    return wrap_long_lines(module.text, new, width, module.source.newline)


def _checked(before: str, after: str, path: str) -> list[str]:
    """Names that nothing would define.

    Raises:
        SyntaxError: Python or LibCST cannot read the new text.
    """
    check_concrete(before, after, ast.parse(after, path))
    return names_left_undefined(before, after)


def _is_exported(exported: set[tuple[str, str]], path: str, name: str) -> bool:
    return (path, name) in exported


def _imported(change: FileChange, home: HelperHome) -> frozenset[str]:
    """What a rewritten file has of its helper module: less than its edits name where some of them went."""
    if change.path.endswith(".ipynb"):
        return home.names
    stem = home.import_name(change.path).rpartition(".")[2]
    found: set[str] = set()
    attributes: set[str] = set()
    for node in ast.walk(ast.parse(change.after)):
        if isinstance(node, ast.Attribute):
            attributes.add(node.attr)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").rpartition(".")[2] == stem:
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found.update(alias.name.rpartition(".")[2] for alias in node.names)
    return home.names & (found | attributes if stem in found else found)


def _helper_changes(used: list[tuple[HelperHome, frozenset[str]]], target: Path) -> list[FileChange]:
    """The helper modules, with what some file imports from them."""
    names: dict[HelperHome, frozenset[str]] = {}
    for home, some in used:
        names[home] = names.get(home, frozenset()) | some
    changes = []
    for home, imported in sorted(names.items(), key=lambda item: item[0].path):
        if not imported:
            continue
        path = target / home.path
        before = path.read_bytes() if path.exists() else None
        after, _ = helper_source(replace(home, names=imported), before)
        if after != before:
            changes.append(FileChange(home.path, before, after))
    return changes


def _exports(project: Project, drafts: dict[str, Module]) -> set[tuple[str, str]]:
    """(file, name) of names that some file, as it will be, imports from another file of the project."""
    named = {path: _names_read(draft) for path, draft in drafts.items()}
    gone = {path: _names_read(project.modules[path]) - words for path, words in named.items()}
    modules = project.with_takers(gone)
    before = {module.path: _names_read(module) for module in modules}

    def reads(module: Module) -> set[str]:
        found = named.get(module.path)
        return before[module.path] if found is None else found

    def goes_unread(module: Module, name: str) -> bool:
        return named.get(module.path) is not None and name in before[module.path]

    return names_taken(modules, project.index, reads, goes_unread)


def _names_read(module: Module) -> set[str]:
    return {node.id for node in module.nodes(ast.Name) if isinstance(node, ast.Name)}
