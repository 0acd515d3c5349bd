"""What a condition of a project becomes without FSDP1."""

from __future__ import annotations

from dataclasses import dataclass

from codemods.model import Code


@dataclass(frozen=True, slots=True)
class Fold:
    """What a condition becomes.

    Attributes:
        value: True or False where that is certain.
        code: its new text where it changes; None where it stays.
        is_outside: it is False only because a library's FSDP1 is refused.
        by_setting: it is False because a setting's value for FSDP1 is asked for.
    """

    value: bool | None = None
    code: Code | None = None
    is_outside: bool = False
    by_setting: bool = False

    @property
    def is_known(self) -> bool:
        return self.value is not None or self.code is not None


UNKNOWN = Fold()
