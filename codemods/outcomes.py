"""What becomes of each finding: done, left to a person, ignored, or only said. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TypeAlias

from codemods.editing import todo
from codemods.editing.apply import compatible, replaces
from codemods.leftovers import left_over
from codemods.model import Edit, Finding, Outcome, Reported, Safety
from codemods.project import Project
from codemods.shared_types import left_together
from codemods.suppressions import ignored_by, old_todos
from codemods.whole import only_whole

_Edits: TypeAlias = dict[str, list[tuple[Edit, Finding]]]
"""File -> what is done in it, and whose edit it is."""


def decided_together(
    project: Project,
    findings: list[Finding],
    only: frozenset[str] | None,
    absent: list[Finding],
    held: dict[Finding, str],
    settings: Callable[[Mapping[Finding, str]], Iterable[Reported]],
) -> list[Reported]:
    """Outcomes with which configuration types, and settings files with what names them, change everywhere or
    nowhere.

    Args:
        absent: findings in files that may not be changed.
        held: findings that are left although they could be done, and why.
        settings: the outcomes in configuration files; its last call is the one that holds.
    """
    while True:
        reported = decide(project, findings, only, held)
        more = left_together([*reported, *settings(held)], absent, held)
        if more == held:
            return reported
        held = more


def decide(
    project: Project,
    findings: Iterable[Finding],
    only: frozenset[str] | None = None,
    held: Mapping[Finding, str] = MappingProxyType({}),
) -> list[Reported]:
    """Give each finding its outcome; edits that clash with an earlier finding's are not done, and said.

    Findings whose codes are switched off have none, and no left-over name is reported in their stead.

    Args:
        held: findings that are left although they could be done, and why.
    """
    ignored = {path: todo.ignores(module) for path, module in list(project.modules.items())}
    reported: list[Reported] = []
    edits: _Edits = {}
    findings = sorted(findings, key=lambda f: f.fades)
    off = [f for f in findings if not project.options.wants(f.code)]
    for finding in findings:
        if not project.options.wants(finding.code):
            continue
        module = project.modules[finding.place.path]
        reason = ignored_by(module, ignored[finding.place.path], finding)
        if reason is not None:
            reported.append(Reported(finding, Outcome.IGNORED, reason))
            continue
        if finding.fades and _is_gone(finding, edits):
            continue
        item = _outcome(project, finding, edits, only)
        if item.outcome is Outcome.DONE and finding in held:
            item = Reported(finding, Outcome.TODO, held[finding])
        reported.append(item)
        _remember(edits, item)
    reported += _leftovers(project, reported, off, only)
    if project.options.whole_only:
        reported = only_whole(project, reported)
        # Names that translations would have replaced, had they not been left.
        for item in _leftovers(project, reported, off, only):
            is_ignored = item.outcome is Outcome.IGNORED
            reported.append(item if is_ignored else replace(item, outcome=Outcome.TODO, left_whole=True))
    return once_per_line(reported) + old_todos(project, reported, only)


def once_per_line(reported: Iterable[Reported]) -> list[Reported]:
    """What is left to a person, or said, without what is said in the same line for the same reason.

    The same reason is the same message, or the same thing to do: `m._stream` and `m._other_stream` send a
    reader to one place once.
    """
    kept: list[Reported] = []
    said: set[tuple[object, ...]] = set()
    for item in reported:
        found = item.finding
        if item.outcome not in (Outcome.TODO, Outcome.NOTE) or found.edits:
            kept.append(item)
            continue
        place = (found.place.path, found.place.line, found.code, item.outcome, found.shares)
        reasons = {(*place, found.message)} | ({(*place, "", found.remedy)} if found.remedy else set())
        if reasons.isdisjoint(said):
            kept.append(item)
        said |= reasons
    return kept


def _leftovers(
    project: Project, reported: list[Reported], off: list[Finding], only: frozenset[str] | None
) -> list[Reported]:
    """FSDP1 names that stay and of which nothing is said."""
    ignored = {path: todo.ignores(module) for path, module in list(project.modules.items())}
    edits: _Edits = {}
    for item in reported:
        _remember(edits, item)
    found = []
    for finding in left_over(project, reported, edits, off):
        path = finding.place.path
        if not project.options.wants(finding.code) or (only is not None and path not in only):
            continue
        reason = ignored_by(project.modules[path], ignored[path], finding)
        item = (
            Reported(finding, Outcome.IGNORED, reason)
            if reason is not None
            else _outcome(project, finding, edits, only)
        )
        found.append(item)
        _remember(edits, item)
    return found


def _remember(edits: _Edits, item: Reported) -> None:
    for edit in item.finding.edits if item.outcome is Outcome.DONE else ():
        edits.setdefault(edit.path, []).append((edit, item.finding))


def _outcome(
    project: Project,
    finding: Finding,
    edits: _Edits,
    only: frozenset[str] | None,
) -> Reported:
    if finding.is_note:
        return Reported(finding, Outcome.NOTE)
    if finding.safety is Safety.MANUAL:
        return Reported(finding, Outcome.TODO)
    if finding.safety is Safety.UNSAFE and not project.options.unsafe_fixes:
        return Reported(finding, Outcome.TODO, "a fix is offered by --unsafe-fixes")
    if todo.stands(project, finding):
        # What an earlier run left to a person is not done behind that person's back.
        return Reported(finding, Outcome.TODO, "remove its TODO to have it translated")
    if (clash := _clash(finding, edits)) is not None:
        detail = f"its edit overlaps that of {clash.code} in line {clash.place.line}"
        return Reported(finding, Outcome.TODO, detail)
    others = sorted({edit.path for edit in finding.edits} - only) if only is not None else []
    if others:
        return Reported(finding, Outcome.TODO, f"it also changes {', '.join(others)}: name that too")
    return Reported(finding, Outcome.DONE)


def _is_gone(finding: Finding, edits: _Edits) -> bool:
    """Whether the text of a finding goes by an edit of another."""
    return any(replaces(edit, finding.place.span) for edit, _ in edits.get(finding.place.path, []))


def _clash(finding: Finding, edits: _Edits) -> Finding | None:
    for edit in finding.edits:
        for other, owner in edits.get(edit.path, []):
            if not compatible(other, edit):
                return owner
    return None
