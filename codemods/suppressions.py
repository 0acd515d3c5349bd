"""Comments of ours in the code: which findings one suppresses, what is wrong with it, old TODOs."""

from __future__ import annotations

from dataclasses import replace

from codemods.analysis.module import Module
from codemods.editing import todo
from codemods.model import (
    Finding,
    Options,
    Outcome,
    Place,
    Reported,
    Span,
    Suppression,
    SuppressionState,
)
from codemods.project import Project
from codemods.shown_places import shown_place


def ignored_by(module: Module, comments: list[todo.Comment], finding: Finding) -> str | None:
    """The reason of the comment that suppresses a finding; None where none does."""
    for comment in comments:
        if suppresses(module, comment, finding):
            return comment.text or "no reason given"
    return None


def suppresses(module: Module, comment: todo.Comment, finding: Finding) -> bool:
    """Whether a comment stands on the finding's lines, or alone on the line above them or their statement."""
    if comment.codes and finding.code not in comment.codes:
        return False
    first = finding.place.line
    if first <= comment.line <= module.line_of(finding.place.span.end):
        return True
    if not comment.own_line:
        return False
    statement = module.statement_at(finding.place.span)
    start = module.line_of(module.span(statement).start) if statement is not None else first
    return comment.line in (start - 1, first - 1)


def suppressions_in(
    project: Project, reported: list[Reported], only: frozenset[str] | None
) -> list[tuple[Suppression, Place]]:
    """Every suppression comment of the Python files, with the lines of the files as they are, and its place
    in the project's text.

    Args:
        reported: what the rules found, outcomes decided.
        only: the files that count; all if None.
    """
    ignored: dict[str, list[Finding]] = {}
    for item in reported:
        if item.outcome is Outcome.IGNORED:
            ignored.setdefault(item.finding.place.path, []).append(item.finding)
    found = []
    for path, module in list(project.modules.items()):
        for comment in todo.ignores(module) if only is None or path in only else ():
            those = [f for f in ignored.get(path, ()) if suppresses(module, comment, f)]
            at = _place(module, comment)
            place = shown_place(project, at)[0]
            seen = [replace(f, place=shown_place(project, f.place)[0]) for f in those]
            comment = replace(comment, line=place.line, column=place.column)
            found.append((suppression(path, comment, seen, project.options), at))
    return found


def suppression(path: str, comment: todo.Comment, those: list[Finding], options: Options) -> Suppression:
    """A comment and the findings it suppresses."""
    if those:
        state = SuppressionState.USED
    elif options.select or options.ignore:
        state = SuppressionState.NOT_JUDGED
    else:
        state = SuppressionState.UNUSED
    return Suppression(
        path,
        comment.line,
        comment.column,
        tuple(sorted(comment.codes)),
        comment.text,
        state,
        tuple((f.code, f.place.line) for f in those),
    )


def check_suppression(found: Suppression, place: Place, options: Options) -> list[Reported]:
    """Findings about a suppression comment: without a reason, or without anything to suppress."""
    if found.state is SuppressionState.UNUSED:
        message = "the suppression suppresses nothing"
        return [Reported(Finding("FM905", place, message, "remove it", is_note=True), Outcome.NOTE)]
    if not found.reason and options.wants("FM904"):
        message = "the suppression gives no reason: write one after the brackets"
        return [Reported(Finding("FM904", place, message), Outcome.TODO)]
    return []


def _place(module: Module, comment: todo.Comment) -> Place:
    start = module.offset(comment.line, 0) + comment.column - 1
    line = module.text[start : module.line_end(start)].rstrip("\r\n")
    return Place(module.path, comment.line, comment.column, Span(start, start + len(line)))


def old_todos(project: Project, reported: list[Reported], only: frozenset[str] | None) -> list[Reported]:
    """TODO comments of an earlier run that no finding of this run stands for."""
    standing = {
        (r.finding.place.path, r.finding.code, todo.statement_line(project, r.finding))
        for r in reported
        if r.outcome in (Outcome.TODO, Outcome.IGNORED)
    }
    found: list[Reported] = []
    for path, module in list(project.modules.items()):
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
