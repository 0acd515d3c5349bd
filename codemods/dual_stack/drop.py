"""`--drop-fsdp1`: FSDP1's branches go before anything else is rewritten.

Round by round: the places where the stacks part are found, FSDP1's part is taken out, and the shorter project
is looked at again, until nothing changes. Then what only the dropped parts used goes too. The rewrite proper
sees the shortened project; a record of where its text came from leads its findings back to the files
as they are.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace

from codemods.analysis.module import Module
from codemods.dual_stack.origins import composed, traced, unmoved
from codemods.dual_stack.places import View, all_spots, view
from codemods.dual_stack.shortened import Shortened
from codemods.dual_stack.spot import DROPPED, KEPT, Refused, Spot
from codemods.dual_stack.unpassed import unpassed
from codemods.dual_stack.unread import unread_edits
from codemods.dual_stack.unused import unused_edits
from codemods.editing import todo
from codemods.editing.apply import apply_edits, compatible
from codemods.editing.code import finding
from codemods.model import Edit, Finding, Safety
from codemods.project import Project
from codemods.suppressions import ignored_by

_MOST_ROUNDS = 30


def drop_fsdp1(
    project: Project,
    only: frozenset[str] | None,
    reread: Callable[[dict[str, str]], Project],
    mentioned: Callable[[], frozenset[str]],
) -> tuple[Shortened, Project]:
    """Take FSDP1's branches out of a project.

    Args:
        only: the files that may be changed; all if None.
        reread: the project with some files' texts in place of what the disk holds.
        mentioned: the words of the files that are no Python, such as a class's name in a YAML file.

    Returns:
        What was done, and the project without those branches.
    """
    short = Shortened()
    texts_before = {path: module.text for path, module in project.modules.items()}
    for _ in range(_MOST_ROUNDS):
        seen = view(project, short.choices)
        short.choices = seen.choices
        if not _drop_spots(seen, only, short):
            unused = unused_edits(project, texts_before, only, mentioned) if short.texts else []
            if not _apply(project, [[edit] for edit in unused], short):
                unread = unread_edits(project, texts_before, only, mentioned) if short.texts else []
                if unread and all(_parses(project.modules[g[0].path], [g]) for g in unread):
                    _apply(project, unread, short)
                elif not _drop_unpassed(project, texts_before, only, mentioned, short):
                    break
        project = reread(short.texts)
    return short, project


def _drop_unpassed(
    project: Project,
    before: dict[str, str],
    only: frozenset[str] | None,
    mentioned: Callable[[], frozenset[str]],
    short: Shortened,
) -> bool:
    """Take out parameters that nothing gives any more; once none can go, say which stay.

    Returns:
        Whether anything changed.
    """
    found = unpassed(project, before, only, mentioned) if short.texts else []
    if _apply(project, [one.edits for one in found if one.edits], short):
        return True
    for one in found:
        note = one.note()
        short.found.append(replace(note, place=short.original_place(note.place)))
    return False


def _drop_spots(seen: View, only: frozenset[str] | None, short: Shortened) -> bool:
    """Do what can be done in this round; edits that overlap wait for the next.

    Returns:
        Whether anything changed.
    """
    spots = [
        spot
        for spot in all_spots(seen)
        if not isinstance(spot.outcome, Refused) and spot.outcome and _may_change(seen, spot, only)
    ]
    said = {id(spot.outcome): _done(spot, short) for spot in spots}
    done = _apply(seen.project, [spot.outcome for spot in spots if isinstance(spot.outcome, list)], short)
    short.found += [said[id(group)] for group in done]
    return bool(done)


def _may_change(seen: View, spot: Spot, only: frozenset[str] | None) -> bool:
    module = spot.module
    if module.path.endswith(".ipynb") or (only is not None and module.path not in only):
        return False
    told = [finding(module, spot.node, code, "") for code in (DROPPED, KEPT)]
    comments = todo.ignores(module)
    if any(ignored_by(module, comments, one) is not None for one in told):
        return False
    return not any(todo.stands(seen.project, one) for one in told)


def _done(spot: Spot, short: Shortened) -> Finding:
    what = "the FSDP1 branch goes; FSDP2's stays"
    if not spot.is_pair:
        what = "a question that only FSDP1's users answered otherwise: FSDP2's answer stays"
    said = finding(spot.module, spot.node, DROPPED, what, safety=Safety.SAFE)
    return replace(said, place=short.original_place(said.place))


def _apply(project: Project, groups: list[list[Edit]], short: Shortened) -> list[list[Edit]]:
    """Do groups of edits, each of one file and whole or not at all.

    Returns:
        The groups that were done: those that fit together and leave valid Python.
    """
    by_path: dict[str, list[list[Edit]]] = {}
    for group in groups:
        mine = by_path.setdefault(group[0].path, [])
        if all(compatible(new, old) for other in mine for old in other for new in group):
            mine.append(group)
    done: list[list[Edit]] = []
    for path, mine in by_path.items():
        module = project.modules[path]
        kept = _valid(module, mine)
        if not kept:
            continue
        done += kept
        short.originals.setdefault(path, module)
        result = traced(module.text, [edit for group in kept for edit in group], module.source.newline)
        outer = short.origins.get(path, unmoved(len(module.text)))
        short.origins[path] = composed(result.origins, outer)
        short.texts[path] = result.text
    return done


def _valid(module: Module, groups: list[list[Edit]]) -> list[list[Edit]]:
    """All groups if the result is valid Python, else as many as leave it valid: no block may be emptied."""
    kept: list[list[Edit]] = []
    if _parses(module, groups):
        return groups
    for group in groups:
        if _parses(module, [*kept, group]):
            kept.append(group)
    return kept


def _parses(module: Module, groups: list[list[Edit]]) -> bool:
    edits = [edit for group in groups for edit in group]
    text = apply_edits(module.text, edits, lambda name, _: name, module.source.newline)
    try:
        compile(text, module.path, "exec", dont_inherit=True, flags=ast.PyCF_ONLY_AST)
    except (SyntaxError, ValueError):
        return False
    return text != module.text
