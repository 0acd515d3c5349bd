"""`--drop-fsdp1`: FSDP1's branches go before anything else is rewritten.

Round by round: the places where the stacks part are found, FSDP1's part is taken out, and the shorter project
is looked at again, until nothing changes. Then what only the dropped parts used goes too. The rewrite proper
sees the shortened project; a record of lines leads its findings back to the files as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from codemods.dual_stack.lines import composed, traced
from codemods.dual_stack.places import View, all_spots, view
from codemods.dual_stack.shortened import Shortened
from codemods.dual_stack.spot import Refused, Spot
from codemods.dual_stack.unused import unused_edits
from codemods.editing import todo
from codemods.editing.apply import compatible
from codemods.editing.code import finding
from codemods.model import Edit, Finding, Safety
from codemods.project import Project
from codemods.suppressions import ignored_by

DROPPED = "FM120"
KEPT = "FM121"
_MOST_ROUNDS = 12


def drop_fsdp1(
    project: Project, only: frozenset[str] | None, reread: Callable[[dict[str, str]], Project]
) -> Shortened:
    """Take FSDP1's branches out of a project.

    Args:
        only: the files that may be changed; all if None.
        reread: the project with some files' texts in place of what the disk holds.
    """
    short = Shortened()
    had_wraps = bool(project.wraps)
    texts_before = {path: module.text for path, module in project.modules.items()}
    for _ in range(_MOST_ROUNDS):
        seen = view(project, short.choices, nothing_is_fsdp1=short.nothing_is_fsdp1)
        short.choices = seen.choices
        edits = list(_wanted(seen, only, short))
        if edits:
            _apply(project, edits, short)
        elif had_wraps and short.texts and not project.wraps and not short.nothing_is_fsdp1:
            short.nothing_is_fsdp1 = True
            continue
        elif not short.texts:
            return short
        else:
            edits = list(unused_edits(project, texts_before, only))
            if not edits:
                return short
            _apply(project, edits, short)
        project = reread(short.texts)
    return short


def _wanted(seen: View, only: frozenset[str] | None, short: Shortened) -> Iterator[Edit]:
    """The edits of this round; those that overlap wait for the next."""
    taken: dict[str, list[Edit]] = {}
    for spot in all_spots(seen):
        if isinstance(spot.outcome, Refused) or not spot.outcome or not _may_change(seen, spot, only):
            continue
        mine = taken.setdefault(spot.module.path, [])
        if all(compatible(new, old) for new in spot.outcome for old in mine):
            mine += spot.outcome
            short.found.append(_done(spot, short))
            yield from spot.outcome


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
    return replace(said, place=short.original_place(said.place, spot.module))


def _apply(project: Project, edits: list[Edit], short: Shortened) -> None:
    by_path: dict[str, list[Edit]] = {}
    for edit in edits:
        by_path.setdefault(edit.path, []).append(edit)
    for path, mine in by_path.items():
        module = project.modules[path]
        short.originals.setdefault(path, module)
        done = traced(module.text, mine, module.source.newline)
        outer = short.lines.get(path) or tuple(range(1, module.text.count("\n") + 2))
        short.lines[path] = composed(done.lines, outer)
        short.texts[path] = done.text
