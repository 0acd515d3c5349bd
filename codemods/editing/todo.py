"""The comments this tool reads and writes: `# TODO(fsdp-migrate FM203): ...` and `# fsdp-migrate:
ignore[FM203] why`."""

from __future__ import annotations

import io
import re
import textwrap
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from codemods.analysis.module import Module
from codemods.editing.layout import DEFAULT
from codemods.model import Edit, Finding, Outcome, Reported, Span
from codemods.project import Project

TODO = re.compile(r"#\s*TODO\(fsdp-migrate (FM\d{3})\):?\s*(.*)")
_CONTINUED = "#   "
IGNORE = re.compile(r"#\s*fsdp-migrate:\s*ignore(?:\[([\w,\s]*)\])?\s*(.*)")


@dataclass(frozen=True, slots=True)
class Comment:
    """One comment of ours.

    Attributes:
        line: its line, from 1.
        codes: codes named; empty means every code.
        text: the remedy, or the reason for ignoring.
        own_line: whether nothing else stands on the line.
    """

    line: int
    codes: frozenset[str]
    text: str
    own_line: bool
    column: int = 1


def todo_lines(code: str, remedy: str, width: int) -> list[str]:
    """The comment written where a person is needed; further lines are set in, so that they read as one."""
    first = f"# TODO(fsdp-migrate {code}): "
    text = " ".join(remedy.split())
    return textwrap.wrap(
        text,
        max(width, 50),
        initial_indent=first,
        subsequent_indent=_CONTINUED,
        break_long_words=False,
        break_on_hyphens=False,
    )


def todos(module: Module) -> list[Comment]:
    """TODO comments left by an earlier run, with the lines that continue them."""
    found = []
    lines = module.lines if "fsdp-migrate" in module.text else []
    for _, comment in _ours(module, TODO):
        following, text = comment.line, [comment.text]
        while following < len(lines) and lines[following].strip().startswith(_CONTINUED):
            text.append(lines[following].strip().lstrip("# "))
            following += 1
        found.append(replace(comment, text=" ".join(text)))
    return found


def ignores(module: Module) -> list[Comment]:
    """Suppression comments."""
    return [c for comment, c in _ours(module, IGNORE) if comment]


def _ours(module: Module, pattern: re.Pattern[str]) -> Iterator[tuple[str, Comment]]:
    if "fsdp-migrate" not in module.text:
        return
    reader = io.StringIO(module.text).readline
    for token in tokenize.generate_tokens(reader):
        if token.type == tokenize.COMMENT and (found := pattern.match(token.string)):
            codes = frozenset(c.strip().upper() for c in (found.group(1) or "").split(",") if c.strip())
            own_line = not token.line[: token.start[1]].strip()
            yield (
                token.string,
                Comment(token.start[0], codes, found.group(2).strip(), own_line, token.start[1] + 1),
            )


def comments_for(project: Project, reported: Iterable[Reported]) -> Iterator[Edit]:
    """Comment lines before the statements of findings that need a person, where they do not stand yet."""
    seen: set[tuple[str, int, str]] = set()
    for item in reported:
        finding = item.finding
        module = project.modules.get(finding.place.path)
        if item.outcome is not Outcome.TODO or not finding.remedy or module is None:
            continue
        position = _position(project, finding)
        key = (finding.place.path, position, finding.code)
        if key in seen or _stands(module, position, finding):
            continue
        seen.add(key)
        line = module.text[position : module.line_end(position)]
        indent = line[: len(line) - len(line.lstrip(" \t"))]
        width = (project.line_length or DEFAULT) - len(indent.expandtabs(4))
        text = "".join(f"{indent}{line}\n" for line in todo_lines(finding.code, finding.remedy, width))
        yield Edit(module.path, Span(position, position), (text,))


def statement_line(project: Project, finding: Finding) -> int:
    """The line before which the TODO of a finding belongs."""
    return project.modules[finding.place.path].line_of(_position(project, finding))


def code_line_below(module: Module, line: int) -> int:
    """The first line of code after a comment line; other comments between do not count."""
    lines = module.lines
    number = line
    while number < len(lines) and (not lines[number].strip() or lines[number].lstrip().startswith("#")):
        number += 1
    return min(number + 1, len(lines))


def _position(project: Project, finding: Finding) -> int:
    module = project.modules[finding.place.path]
    statement = module.statement_at(finding.place.span)
    start = module.span(statement).start if statement is not None else finding.place.span.start
    return module.line_start(start)


def stands(project: Project, finding: Finding) -> bool:
    """Whether an earlier run left a TODO of that code at the finding's statement."""
    module = project.modules[finding.place.path]
    return "fsdp-migrate" in module.text and _stands(module, _position(project, finding), finding)


def _stands(module: Module, position: int, finding: Finding) -> bool:
    """Whether a TODO of that code stands above the statement already, or is the finding's own place."""
    line = module.line_of(position)
    return any(
        finding.code in comment.codes
        and (comment.line == finding.place.line or code_line_below(module, comment.line) == line)
        for comment in todos(module)
    )
