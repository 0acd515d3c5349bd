"""TODO comments in YAML files and scripts: where they are written, and which an earlier run left. Pure."""

from __future__ import annotations

from codemods.configuration.comments import todos
from codemods.configuration.nested import all_commands
from codemods.configuration.tree import ConfigFile, below
from codemods.editing.todo import todo_lines
from codemods.model import Edit, Finding, Outcome, Place, Reported, Span

_WIDTH = 100


def todo_edits(file: ConfigFile, reported: list[Reported]) -> list[Edit]:
    """Comment lines before the lines that need a person; JSON has no comments."""
    if file.kind == "json":
        return []
    edits: list[Edit] = []
    seen: set[tuple[int, str]] = set()
    standing = todos(file)
    for item in reported:
        found = item.finding
        if item.outcome is not Outcome.TODO or not found.remedy:
            continue
        start = todo_position(file, found.place.span.start)
        if (start, found.code) in seen or found.place.line in {c.line for c in standing}:
            continue
        seen.add((start, found.code))
        if any(found.code in c.codes and c.line in _lines_above(file, start) for c in standing):
            continue
        line = file.text[start : file.line_end(start)]
        indent = line[: len(line) - len(line.lstrip(" \t"))]
        lines = todo_lines(found.code, found.remedy, _WIDTH - len(indent))
        text = "".join(f"{indent}{line}\n" for line in lines)
        edits.append(Edit(file.path, Span(start, start), (text,)))
    return edits


def todo_position(file: ConfigFile, position: int) -> int:
    """Where a comment line can stand: before the line, in shell before the command's first line, never within
    braces."""
    if file.kind in ("shell", "docker"):
        for command in all_commands(file.text, is_docker=file.kind == "docker"):
            if command.span.start <= position < command.span.end:
                return file.line_start(_array_start(file.text, command.span.start))
    flows = [m.span for root in file.roots for m in below(root) if m.flow and m.span.start < position]
    around = [span.start for span in flows if position < span.end]
    return file.line_start(min([position, *around]))


def _array_start(text: str, position: int) -> int:
    """The start of `NAME=(` where only blanks stand between it and an array's first word."""
    before = text[:position].rstrip()
    return len(before) - 1 if before.endswith("(") else position


def _lines_above(file: ConfigFile, position: int) -> set[int]:
    """The comment lines directly above a line."""
    lines = file.text.split("\n")  # as the file counts them: a form feed ends none
    number = file.line_of(position) - 1
    found = set()
    while number >= 1 and lines[number - 1].lstrip().startswith("#"):
        found.add(number)
        number -= 1
    return found


def old_todos(file: ConfigFile, reported: list[Reported]) -> list[Reported]:
    """TODO comments of an earlier run that no finding of this run stands for."""
    standing = {
        (code, line)
        for r in reported
        if r.outcome in (Outcome.TODO, Outcome.IGNORED)
        for code in (r.finding.code,)
        for line in _lines_above(file, todo_position(file, r.finding.place.span.start))
    }
    found = []
    for comment in todos(file):
        code = next(iter(comment.codes))
        if (code, comment.line) in standing:
            continue
        start = file.position(comment.line)
        place = Place(file.path, comment.line, comment.column, Span(start, file.line_end(start)))
        left = Finding(code, place, "a TODO of an earlier run is not resolved", comment.text)
        found.append(Reported(left, Outcome.TODO))
    return found
