"""A project without FSDP1's branches, and the way back to the files as they are."""

from __future__ import annotations

from dataclasses import dataclass, field

from codemods.analysis.module import Module
from codemods.dual_stack.choices import Choices
from codemods.dual_stack.origins import Origins
from codemods.model import WHOLE_FILE, Finding, Place, Span


@dataclass(slots=True)
class Shortened:
    """A project without FSDP1's branches.

    Attributes:
        texts: file -> its text without them; only files that changed.
        origins: file -> for each character of its text now, its position in the file as it is.
        found: what was dropped, in places of the files as they are.
        choices: the settings that chose between the stacks.
        originals: file -> the module as it was.
    """

    texts: dict[str, str] = field(default_factory=dict)
    origins: dict[str, Origins[int]] = field(default_factory=dict)
    found: list[Finding] = field(default_factory=list)
    choices: Choices = field(default_factory=Choices)
    originals: dict[str, Module] = field(default_factory=dict)

    def original_place(self, place: Place) -> Place:
        """A place of the shortened text, in the file as it is."""
        record = self.origins.get(place.path)
        if not record or place.span == WHOLE_FILE:
            return place
        start, end = place.span.start, place.span.end
        first = record[min(start, len(record) - 1)]
        last = record[min(end, len(record)) - 1] + 1 if end > start else first
        return self.originals[place.path].place_of(Span(first, last))
