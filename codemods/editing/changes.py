"""From accepted findings to new file contents, helper modules included."""

from __future__ import annotations

import ast
from dataclasses import replace
from functools import partial
from pathlib import Path

from codemods.analysis.exports import names_taken
from codemods.analysis.module import Module
from codemods.editing import todo
from codemods.editing.apply import apply_edits
from codemods.editing.dead_functions import dead_functions, without_functions
from codemods.editing.dead_names import without_dead_names
from codemods.editing.helper_assembly import Needs
from codemods.editing.helpers import HelperHome, helper_homes, helper_source
from codemods.editing.imports import settle_imports
from codemods.editing.layout import DEFAULT
from codemods.editing.line_join import join_short_lines
from codemods.editing.line_wrap import wrap_long_lines
from codemods.editing.quotes import in_other_quotes
from codemods.editing.spelling import Spelling
from codemods.editing.undefined import check_concrete, names_left_undefined
from codemods.model import Edit, FileChange, Finding, Reported, Span
from codemods.project import Project


def file_changes(
    project: Project, reported: list[Reported], accepted: list[Finding], target: Path
) -> tuple[list[FileChange], dict[str, str], dict[str, dict[str, Span]]]:
    """The new contents of every changed file.

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
        wanted = in_other_quotes(module, wanted)
        texts[path] = (apply_edits(module.text, wanted, spelling.spell, module.source.newline), spelling)
    dead = dead_functions(project, edits, {path: text for path, (text, _) in texts.items()})
    for path, gone in dead.items():
        text, spelling = texts[path]
        texts[path] = (without_functions(text, gone), spelling)
    changes, broken = _settled(project, texts)
    used = {c.path: _imported(c, homes[c.path]) for c in changes if c.path in homes}
    changes += _helper_changes([(homes[path], names) for path, names in used.items()], target)
    return changes, broken | unserved, dead


def _settled(
    project: Project, texts: dict[str, tuple[str, Spelling]]
) -> tuple[list[FileChange], dict[str, str]]:
    changes: list[FileChange] = []
    broken: dict[str, str] = {}
    exported = _exports(project, {path: text for path, (text, _) in texts.items()})
    for path, (text, spelling) in sorted(texts.items()):
        module = project.as_it_is(path)
        try:
            lean = without_dead_names(module, text)
            new = settle_imports(module, lean, spelling, partial(_is_exported, exported, path))
            if not module.text.startswith(("\n", "\r")):
                new = new.lstrip("\r\n")  # imports that stood at the top may be gone
            width = project.line_length or DEFAULT
            new = join_short_lines(module.text, new, width)
            new = wrap_long_lines(module.text, new, width, module.source.newline)
            compile(new, path, "exec", dont_inherit=True, flags=ast.PyCF_ONLY_AST)
            encoded = module.source.encoded(new)
            lost: list[str] = []
            if new != module.text:
                check_concrete(module.text, new)
                lost = names_left_undefined(module.text, new)
        except (SyntaxError, UnicodeEncodeError) as error:
            broken[path] = f"its rewritten form would be no valid Python ({error})"
            continue
        if lost:
            broken[path] = (
                f"its rewritten form would be no valid Python (nothing would define {', '.join(lost)} in it)"
            )
            continue
        if encoded != module.source.data:
            changes.append(FileChange(path, module.source.data, encoded))
    return changes, broken


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


def _exports(project: Project, texts: dict[str, str]) -> set[tuple[str, str]]:
    """(file, name) of names that some file, as it will be, imports from another file of the project."""
    named = {path: _names_in(text) for path, text in texts.items()}
    gone = {path: _names_read(project.modules[path]) - (words or set()) for path, words in named.items()}
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


def _names_in(text: str) -> set[str] | None:
    """Every name a text uses; None where it does not parse."""
    try:
        return {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
    except SyntaxError:
        return None
