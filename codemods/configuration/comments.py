"""Our comments in YAML and shell files: `# TODO(fsdp-migrate FM603): ...` and `# fsdp-migrate: ignore[FM603]
why`."""

from __future__ import annotations

import re

from codemods.configuration.tree import ConfigFile, Items, Mapping, Node, Scalar
from codemods.editing.todo import IGNORE, TODO, Comment
from codemods.model import Finding, Options, Outcome, Reported, Span, Suppression
from codemods.suppressions import check_suppression, suppression

_COMMENT = re.compile(r"(?:(?<=\s)|^)#[^\r\n]*", re.MULTILINE)


def todos(file: ConfigFile) -> list[Comment]:
    """TODO comments left by an earlier run."""
    return _ours(file, TODO)


def ignores(file: ConfigFile) -> list[Comment]:
    """Suppression comments."""
    return _ours(file, IGNORE)


def suppresses(file: ConfigFile, comment: Comment, found: Finding) -> bool:
    """Whether a comment stands on the finding's lines, or alone on the line above them."""
    first, last = found.place.line, file.line_of(found.place.span.end)
    above = comment.own_line and comment.line == first - 1
    return (above or first <= comment.line <= last) and (not comment.codes or found.code in comment.codes)


def suppressions_in(file: ConfigFile, reported: list[Reported], options: Options) -> list[Suppression]:
    """Every suppression comment of a file, with what it suppresses."""
    ignored = [r.finding for r in reported if r.outcome is Outcome.IGNORED]
    found = []
    for comment in ignores(file):
        those = [f for f in ignored if suppresses(file, comment, f)]
        found.append(suppression(file.path, comment, those, options))
    return found


def judged(file: ConfigFile, found: list[Suppression], options: Options) -> list[Reported]:
    """What is wrong with the suppression comments of a file."""
    reported = []
    for comment in found:
        if comment.path == file.path:
            start = file.position(comment.line) + comment.column - 1
            place = file.place(Span(start, max(start, file.line_end(start) - 1)))
            reported += check_suppression(comment, place, options)
    return reported


def _ours(file: ConfigFile, pattern: re.Pattern[str]) -> list[Comment]:
    if file.kind == "json" or "fsdp-migrate" not in file.text:
        return []
    scalars = [span for root in file.roots for span in _scalar_spans(root)]
    found = []
    for comment in _COMMENT.finditer(file.text):
        said = pattern.match(comment.group())
        if said is None or any(s.start <= comment.start() < s.end for s in scalars):
            continue
        codes = frozenset(c.strip().upper() for c in (said.group(1) or "").split(",") if c.strip())
        start = file.line_start(comment.start())
        own_line = not file.text[start : comment.start()].strip()
        line = file.line_of(comment.start())
        found.append(Comment(line, codes, said.group(2).strip(), own_line, comment.start() - start + 1))
    return found


def _scalar_spans(node: Node) -> list[Span]:
    match node:
        case Scalar():
            return [node.span]
        case Items():
            return [span for item in node.items for span in _scalar_spans(item)]
        case Mapping():
            return [span for entry in node.entries for span in _scalar_spans(entry.node)]
