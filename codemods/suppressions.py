"""Which findings a comment suppresses, and what is wrong with such comments."""

from __future__ import annotations

from codemods.analysis.module import Module
from codemods.editing import todo
from codemods.model import Finding, Outcome, Place, Reported, Span
from codemods.project import Project


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


def check_suppressions(
    project: Project, reported: list[Reported], only: frozenset[str] | None
) -> list[Reported]:
    """Findings about suppression comments: without a reason, and without anything to suppress.

    Args:
        reported: what the rules found, outcomes decided.
        only: the files that count; all if None.
    """
    options = project.options
    is_whole_run = not options.select and not options.ignore
    ignored: dict[str, list[Finding]] = {}
    for item in reported:
        if item.outcome is Outcome.IGNORED:
            ignored.setdefault(item.finding.place.path, []).append(item.finding)
    found: list[Reported] = []
    for path, module in project.modules.items():
        for comment in todo.ignores(module) if only is None or path in only else ():
            place = _place(module, comment)
            is_useless = not any(suppresses(module, comment, f) for f in ignored.get(path, ()))
            if not comment.text and not (is_whole_run and is_useless) and options.wants("FM904"):
                message = "the suppression gives no reason: write one after the brackets"
                found.append(Reported(Finding("FM904", place, message), Outcome.TODO))
            if is_whole_run and is_useless:
                message = "the suppression suppresses nothing"
                finding = Finding("FM905", place, message, "remove it", is_note=True)
                found.append(Reported(finding, Outcome.NOTE))
    return found


def _place(module: Module, comment: todo.Comment) -> Place:
    start = module.offset(comment.line, 0) + comment.column - 1
    line = module.text[start : module.line_end(start)].rstrip("\r\n")
    return Place(module.path, comment.line, comment.column, Span(start, start + len(line)))
