"""From findings to a rewrite: what is applied, what conflicts, what is left to a person. Pure: writes
nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from codemods.analysis.collect import read_project
from codemods.analysis.library_calls import surroundings
from codemods.configuration.plan import is_configuration, plan_configuration
from codemods.editing import todo
from codemods.editing.apply import compatible, replaces
from codemods.editing.changes import file_changes
from codemods.editing.notebooks import Notebook
from codemods.leftovers import left_over
from codemods.model import (
    Edit,
    Finding,
    Options,
    Outcome,
    Place,
    Reported,
    Rewrite,
    Safety,
    Span,
    WrapReport,
)
from codemods.project import Project
from codemods.suppressions import check_suppressions, ignored_by

DROPPED_BRANCH = "FM120"
WRAP_FORMS = {"FM101": "inline", "FM102": "helper", "FM107": "helper"}
"""Codes of translated wrap calls, and what the report calls them."""


def plan_rewrite(
    target: Path, files: list[str], options: Options, *, only: frozenset[str] | None = None
) -> Rewrite:
    """Everything a rewrite of these files comes to.

    Args:
        target: the directory that paths are relative to.
        files: Python files, notebooks and configuration files, relative to it, forward slashes.
        only: the files that may be changed; all if None. The others are read to understand these.
    """
    files, configs = split(files)
    project, skipped = _project(target, files, options, only)
    findings = find_all(project)
    if only is not None:
        findings = [f for f in findings if f.place.path in only]
    reported, accepted = decide(project, findings, only)
    suppressions = check_suppressions(project, reported, only)
    changes, broken = file_changes(project, reported, accepted, target)
    sites = [_site_in_original(project, site) for site in _wrap_reports(project, reported)]
    if broken:
        reported = [_undone(item, broken) for item in reported]
        reported += [_left_alone(path, why) for path, why in broken.items()]
    reported += suppressions
    reported = [_in_original(project, item) for item in reported] + _dropped(project)
    settings = plan_configuration(target, configs, options, surroundings(project), only=only)
    changes = sorted([*changes, *settings.changes], key=lambda change: change.path)
    skipped.update(settings.skipped)
    if only is not None:
        skipped = {path: why for path, why in skipped.items() if path in only}
    reported += settings.reported
    reported += [_unread(path, why) for path, why in sorted(skipped.items())]
    reported.sort(key=lambda r: (r.finding.place.path, r.finding.place.line, r.finding.code))
    sites = [s for s in sites if only is None or s.path in only]
    return Rewrite(
        tuple(changes),
        tuple(_in_cell(project, item) for item in reported),
        tuple(replace(s, line=_cell(project, s.path, s.line)[0]) for s in sites),
        len(files),
        len(project.modules),
        skipped,
        (settings.searched, settings.read),
    )


def _project(
    target: Path, files: list[str], options: Options, only: frozenset[str] | None
) -> tuple[Project, dict[str, str]]:
    """The project; with `--drop-fsdp1` without FSDP1's branches."""
    project, skipped = read_project(target, files, options)
    if not options.drop_fsdp1 or not options.wants(DROPPED_BRANCH):
        return project, skipped
    from codemods.dual_stack.drop import drop_fsdp1

    short = drop_fsdp1(project, only, lambda texts: read_project(target, files, options, texts)[0])
    if short.texts:
        project, skipped = read_project(target, files, options, short.texts)
    project.dropped = short
    return project, skipped


def _in_original(project: Project, item: Reported) -> Reported:
    """A finding about shortened text, at the line where that stands in the file as it is."""
    if project.dropped is None:
        return item
    place = item.finding.place
    place = project.dropped.original_place(place, project.modules.get(place.path))
    return replace(item, finding=replace(item.finding, place=place))


def _site_in_original(project: Project, site: WrapReport) -> WrapReport:
    if project.dropped is None:
        return site
    return replace(site, line=project.dropped.original_place(Place(site.path, site.line, 1, Span(0, 0))).line)


def _dropped(project: Project) -> list[Reported]:
    found = project.dropped.found if project.dropped is not None else []
    return [Reported(finding, Outcome.DONE) for finding in dict.fromkeys(found)]


def _cell(project: Project, path: str, line: int) -> tuple[int, str]:
    """The line that a person sees, and where that is in a notebook."""
    source = project.modules[path].source if path in project.modules else None
    if not isinstance(source, Notebook):
        return line, ""
    line, cell, inside = source.locate(line)
    return line, f"cell {cell}, line {inside}"


def _in_cell(project: Project, item: Reported) -> Reported:
    place = item.finding.place
    line, where = _cell(project, place.path, place.line)
    if not where:
        return item
    detail = f"{where}; {item.detail}" if item.detail else where
    return replace(item, finding=replace(item.finding, place=replace(place, line=line)), detail=detail)


def split(files: list[str]) -> tuple[list[str], list[str]]:
    """Files that hold Python, and configuration files."""
    return [f for f in files if not is_configuration(f)], [f for f in files if is_configuration(f)]


def find_all(project: Project) -> list[Finding]:
    """What every rule finds, in the rules' order of precedence."""
    from codemods.rule import all_rules

    found: list[Finding] = []
    for rule in all_rules():
        if rule.check is not None:
            found.extend(rule.check(project))
    return list(dict.fromkeys(found))


def decide(
    project: Project, findings: Iterable[Finding], only: frozenset[str] | None = None
) -> tuple[list[Reported], list[Finding]]:
    """Give each finding its outcome; edits that clash with an earlier finding's are not done, and said.

    Findings whose codes are switched off have none, and no left-over name is reported in their stead.
    """
    ignored = {path: todo.ignores(module) for path, module in project.modules.items()}
    reported: list[Reported] = []
    accepted: list[Finding] = []
    edits: dict[str, list[tuple[Edit, Finding]]] = {}
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
        reported.append(item)
        if item.outcome is Outcome.DONE:
            accepted.append(finding)
            for edit in finding.edits:
                edits.setdefault(edit.path, []).append((edit, finding))
    for finding in left_over(project, reported, edits, off):
        if not project.options.wants(finding.code) or (only is not None and finding.place.path not in only):
            continue
        path = finding.place.path
        reason = ignored_by(project.modules[path], ignored[path], finding)
        if reason is not None:
            reported.append(Reported(finding, Outcome.IGNORED, reason))
            continue
        item = _outcome(project, finding, edits, only)
        reported.append(item)
        if item.outcome is Outcome.DONE:
            accepted.append(finding)
            for edit in finding.edits:
                edits.setdefault(edit.path, []).append((edit, finding))
    return reported + _old_todos(project, reported, only), accepted


def _outcome(
    project: Project,
    finding: Finding,
    edits: dict[str, list[tuple[Edit, Finding]]],
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


def _is_gone(finding: Finding, edits: dict[str, list[tuple[Edit, Finding]]]) -> bool:
    """Whether the text of a finding goes by an edit of another."""
    return any(replaces(edit, finding.place.span) for edit, _ in edits.get(finding.place.path, []))


def _clash(finding: Finding, edits: dict[str, list[tuple[Edit, Finding]]]) -> Finding | None:
    for edit in finding.edits:
        for other, owner in edits.get(edit.path, []):
            if not compatible(other, edit):
                return owner
    return None


def _old_todos(project: Project, reported: list[Reported], only: frozenset[str] | None) -> list[Reported]:
    """TODO comments of an earlier run that no finding of this run stands for."""
    standing = {
        (r.finding.place.path, r.finding.code, todo.statement_line(project, r.finding))
        for r in reported
        if r.outcome in (Outcome.TODO, Outcome.IGNORED)
    }
    found: list[Reported] = []
    for path, module in project.modules.items():
        if only is not None and path not in only:
            continue
        ignored = todo.ignores(module)
        for comment in todo.todos(module):
            code = next(iter(comment.codes))
            below = todo.code_line_below(module, comment.line)
            if (path, code, below) in standing or not project.options.wants(code):
                continue
            # It stands for the code below it, so a suppression anywhere between the two is meant for it.
            span = Span(module.offset(comment.line, 0), module.offset(below, 0))
            place = Place(path, comment.line, comment.column, span)
            finding = Finding(code, place, "a TODO of an earlier run is not resolved", comment.text)
            reason = ignored_by(module, ignored, finding)
            outcome = Outcome.TODO if reason is None else Outcome.IGNORED
            found.append(Reported(finding, outcome, reason or ""))
    return found


def _undone(item: Reported, broken: dict[str, str]) -> Reported:
    """What was to be done in a file that is left alone is not done."""
    if item.outcome is Outcome.DONE and any(edit.path in broken for edit in item.finding.edits):
        return replace(item, outcome=Outcome.TODO, detail="the file was left as it is")
    return item


def _left_alone(path: str, why: str) -> Reported:
    message = f"the file was left as it is: its rewritten form would be no valid Python ({why})"
    return Reported(Finding("FM903", Place(path, 1, 1, Span(0, 0)), message), Outcome.TODO)


def _unread(path: str, why: str) -> Reported:
    return Reported(Finding("FM901", Place(path, 1, 1, Span(0, 0)), f"the file {why}"), Outcome.TODO)


def _wrap_reports(project: Project, reported: list[Reported]) -> tuple[WrapReport, ...]:
    found = []
    done = [r.finding for r in reported if r.outcome is Outcome.DONE and r.finding.code in WRAP_FORMS]
    for site in project.wraps:
        place = site.module.place(site.node)
        name = site.module.span(site.function)
        owner = next(
            (
                f
                for f in done
                for e in f.edits
                if e.path == place.path and e.span.holds(name) and replaces(e, name)
            ),
            None,
        )
        form = WRAP_FORMS[owner.code] if owner is not None else "left"
        found.append(WrapReport(place.path, place.line, form, owner.detail if owner is not None else ""))
    return tuple(found)
