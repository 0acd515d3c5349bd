"""Reads the loss curves that the demo's trainer logs, and compares two of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from fsdp_migrate.errors import JobError


@dataclass(frozen=True, slots=True)
class LossCurve:
    """Losses by optimizer step, as `log.jsonl` has them: every digit of the float."""

    train: dict[int, float]
    validation: dict[int, float]

    @staticmethod
    def read(path: Path) -> LossCurve:
        """Read a `log.jsonl`.

        Raises:
            JobError: there is none, so the job did not train.
        """
        if not path.exists():
            raise JobError(f"the job ended without training: {path} was not written")
        records = [json.loads(line) for line in path.read_text().splitlines()]
        return LossCurve(
            train={record["step"]: record["loss"] for record in records},
            validation={record["step"]: record["val_loss"] for record in records if "val_loss" in record},
        )

    def after(self, step: int) -> LossCurve:
        """The part after `step`."""
        return LossCurve(
            {at: loss for at, loss in self.train.items() if at > step},
            {at: loss for at, loss in self.validation.items() if at > step},
        )


@dataclass(frozen=True, slots=True)
class LossComparison:
    """How far a resumed run lies from the uninterrupted one.

    Attributes:
        compared: losses compared, training and validation.
        equal: of these, equal to the last bit.
        largest_relative: largest |a - b| / |a|.
        limit: how much of that is rounding; 0 where none is expected.
    """

    compared: int
    equal: int
    largest_relative: float
    limit: float

    @property
    def holds(self) -> bool:
        """Whether the resumed run is the uninterrupted one."""
        return self.compared > 0 and self.largest_relative <= self.limit

    def __str__(self) -> str:
        if self.compared and self.equal == self.compared:
            return f"{self.compared} losses equal to the last bit"
        difference = f"largest relative difference {self.largest_relative:.1e}"
        verdict = f"below {self.limit:.0e}" if self.holds else f"above {self.limit:.0e}"
        return f"{self.equal} of {self.compared} losses equal, {difference}, {verdict}"


def compare(reference: LossCurve, resumed: LossCurve, limit: float) -> LossComparison:
    """Compare two curves over the steps of `reference`; a step that `resumed` lacks differs infinitely."""
    pairs = [(loss, resumed.train.get(step, float("inf"))) for step, loss in reference.train.items()]
    pairs += [
        (loss, resumed.validation.get(step, float("inf"))) for step, loss in reference.validation.items()
    ]
    # A NaN compares as infinitely far, not as equal.
    distances = [abs(a - b) / abs(a) if b == b else float("inf") for a, b in pairs]
    return LossComparison(
        compared=len(pairs),
        equal=sum(a == b for a, b in pairs),
        largest_relative=max(distances, default=float("inf")),
        limit=limit,
    )
