"""A project without FSDP1's branches, and the way back to the files as they are."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from codemods.analysis.module import Module
from codemods.dual_stack.choices import Choices
from codemods.model import Finding, Place


@dataclass(slots=True)
class Shortened:
    """A project without FSDP1's branches.

    Attributes:
        texts: file -> its text without them; only files that changed.
        lines: file -> for each of its lines now, the line (from 1) of the file as it is.
        found: what was dropped, in places of the files as they are.
        choices: the settings that chose between the stacks.
        nothing_is_fsdp1: every FSDP1 wrap went.
        originals: file -> the module as it was.
    """

    texts: dict[str, str] = field(default_factory=dict)
    lines: dict[str, tuple[int, ...]] = field(default_factory=dict)
    found: list[Finding] = field(default_factory=list)
    choices: Choices = field(default_factory=Choices)
    nothing_is_fsdp1: bool = False
    originals: dict[str, Module] = field(default_factory=dict)

    def original_place(self, place: Place, module: Module | None = None) -> Place:
        """A place of the shortened text, in the file as it is."""
        record = self.lines.get(place.path)
        if not record:
            return place
        line = record[min(place.line, len(record)) - 1]
        moved = 0
        if module is not None and place.path in self.originals:
            moved = _indent(self.originals[place.path], line) - _indent(module, place.line)
        return replace(place, line=line, column=max(1, place.column + moved))


def _indent(module: Module, line: int) -> int:
    start = module.offset(line, 0)
    text = module.text[start : module.line_end(start)]
    return len(text) - len(text.lstrip(" \t"))
