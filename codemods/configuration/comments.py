"""Our comments in YAML and shell files: `# TODO(fsdp-migrate FM603): ...` and `# fsdp-migrate: ignore[FM603]
why`."""

from __future__ import annotations

import re

from codemods.configuration.tree import ConfigFile, Items, Mapping, Node, Scalar
from codemods.editing.todo import IGNORE, TODO, Comment
from codemods.model import Span

_COMMENT = re.compile(r"(?:(?<=\s)|^)#[^\r\n]*", re.MULTILINE)


def todos(file: ConfigFile) -> list[Comment]:
    """TODO comments left by an earlier run."""
    return _ours(file, TODO)


def ignores(file: ConfigFile) -> list[Comment]:
    """Suppression comments."""
    return _ours(file, IGNORE)


def _ours(file: ConfigFile, pattern: re.Pattern[str]) -> list[Comment]:
    if file.kind == "json" or "fsdp-migrate" not in file.text:
        return []
    scalars = [span for root in file.roots for span in _scalar_spans(root)]
    found = []
    for comment in _COMMENT.finditer(file.text):
        said = pattern.match(comment.group())
        if said is None or any(s.start <= comment.start() < s.end for s in scalars):
            continue
        codes = frozenset(c.strip() for c in (said.group(1) or "").split(",") if c.strip())
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
