"""`--whole-only`: places that share a model are rewritten together or not at all. Pure.

Places are one group where they speak of the same wrap call, directly or through an optimizer. A place that
speaks of no model (a policy, a configuration type) belongs with every model of the files that its file is
linked with by imports: what it becomes is what those calls are given.
"""

from __future__ import annotations

import ast
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace

from codemods.analysis.holding import No, WrapCall
from codemods.analysis.reach import Groups
from codemods.model import Finding, Outcome, Reported, Span
from codemods.project import Project


def only_whole(project: Project, reported: Iterable[Reported]) -> list[Reported]:
    """Outcomes such that no group is done in part: its translations are left where one place needs a person.

    The places left so carry `left_whole`; nothing is written at any of them.
    """
    reported = list(reported)
    keys = {id(item): _keys(project, item.finding) for item in reported if item.outcome in _COUNT}
    groups = Groups[Hashable]()
    for found in keys.values():
        groups.join(found)
    blockers: dict[Hashable, Finding] = {}
    for item in reported:
        if item.outcome is Outcome.TODO:
            blockers.setdefault(groups.of(keys[id(item)][0]), item.finding)
    result = []
    for item in reported:
        blocker = blockers.get(groups.of(keys[id(item)][0])) if id(item) in keys else None
        if blocker is None:
            result.append(item)
            continue
        detail = item.detail
        if item.outcome is Outcome.DONE:
            place = blocker.place
            detail = f"left with its model, as {blocker.code} in {place.path}:{place.line} needs a person"
        result.append(replace(item, outcome=Outcome.TODO, detail=detail, left_whole=True))
    return result


def only_whole_file(reported: Iterable[Reported]) -> list[Reported]:
    """The same for a configuration file, whose settings are one group."""
    reported = list(reported)
    blocker = next((item.finding for item in reported if item.outcome is Outcome.TODO), None)
    if blocker is None:
        return reported
    detail = f"left with the file, as {blocker.code} in line {blocker.place.line} needs a person"
    return [
        replace(item, outcome=Outcome.TODO, detail=detail, left_whole=True)
        if item.outcome is Outcome.DONE
        else replace(item, left_whole=item.outcome is Outcome.TODO)
        for item in reported
    ]


_COUNT = (Outcome.TODO, Outcome.DONE)


def _keys(project: Project, found: Finding) -> list[Hashable]:
    """What a place belongs to; never empty."""
    paths = sorted({found.place.path, *(edit.path for edit in found.edits)})
    sites = {site for path in paths for site in _sites(project, path, _spans(found, path))}
    keys: list[Hashable] = [site for site in project.wraps if site in sites]
    if not keys:
        groups = {project.group(path) for path in paths if path in project.modules}
        keys = [*sorted(groups), *(s for s in project.wraps if project.group(s.module.path) in groups)]
    return keys or list(paths)


def _spans(found: Finding, path: str) -> list[Span]:
    spans = [edit.span for edit in found.edits if edit.path == path]
    return [*spans, found.place.span] if path == found.place.path else spans


def _sites(project: Project, path: str, spans: Sequence[Span]) -> set[WrapCall]:
    """Wrap calls that text in some spans of a file is, or speaks of."""
    module = project.modules.get(path)
    if module is None:
        return set()
    found = {s for s in project.wraps if s.module is module and _touches(spans, module.span(s.node))}
    for node in (*module.nodes(ast.Name), *module.nodes(ast.Attribute)):
        if isinstance(node, ast.expr) and any(span.holds(module.span(node)) for span in spans):
            for holding in (project.sharded(module, node), project.optimizer_of(module, node)):
                if not isinstance(holding, No):
                    found |= holding.sites
    return found


def _touches(spans: Sequence[Span], span: Span) -> bool:
    return any(other.holds(span) or (span.holds(other) and other.start < other.end) for other in spans)
