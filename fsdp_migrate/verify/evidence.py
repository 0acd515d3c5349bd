"""What the rules that name causes may look at."""

from __future__ import annotations

from dataclasses import dataclass

from fsdp_migrate.verify.compare import Comparison
from fsdp_migrate.verify.model import Difference
from fsdp_migrate.verify.record import ArmRecord


@dataclass(frozen=True, slots=True)
class Evidence:
    """What rules may look at."""

    original: ArmRecord
    candidate: ArmRecord
    comparison: Comparison

    @property
    def first(self) -> Difference | None:
        """The first difference beyond its limit."""
        return next((one for one in self.comparison.differences if one.fails), None)
