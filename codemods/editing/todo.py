"""The comments this tool reads and writes: `# TODO(fsdp-migrate FM203): ...` and `# fsdp-migrate: ignore[FM203] why`."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass

from codemods.analysis.index import Module

TODO = re.compile(r"#\s*TODO\(fsdp-migrate (FM\d{3})\):?\s*(.*)")
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


def todo_text(code: str, remedy: str) -> str:
    """The comment written where a person is needed."""
    return f"# TODO(fsdp-migrate {code}): {' '.join(remedy.split())}"


def todos(module: Module) -> list[Comment]:
    """TODO comments left by an earlier run."""
    return [c for comment, c in _ours(module, TODO) if comment]


def ignores(module: Module) -> list[Comment]:
    """Suppression comments."""
    return [c for comment, c in _ours(module, IGNORE) if comment]


def _ours(module: Module, pattern: re.Pattern[str]) -> Iterator[tuple[str, Comment]]:
    if "fsdp-migrate" not in module.text:
        return
    reader = io.StringIO(module.text).readline
    for token in tokenize.generate_tokens(reader):
        if token.type == tokenize.COMMENT and (found := pattern.match(token.string)):
            codes = frozenset(c.strip() for c in (found.group(1) or "").split(",") if c.strip())
            own_line = not token.line[: token.start[1]].strip()
            yield (
                token.string,
                Comment(token.start[0], codes, found.group(2).strip(), own_line, token.start[1] + 1),
            )
