"""One call of a model without gradients, as the record keeps it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Answer:
    """One call of a model without gradients, after `step` steps, on one rank.

    Args:
        model: "model1", or "other1" where it is only called without gradients.
        number: among the calls of this model since the last step, from 1.
        inputs: digest of what it was given.
        training: modules in training mode.
        random: digest of the random number generators before it; "" in older records.
    """

    step: int
    rank: int
    model: str
    number: int
    inputs: str
    training: int
    random: str = ""

    @property
    def call(self) -> tuple[int, int, str, int]:
        """What tells it from other calls of its arm."""
        return self.step, self.rank, self.model, self.number

    @property
    def name(self) -> str:
        """What names of the tensors that it returned begin with."""
        return f"{self.model}, call {self.number}, rank {self.rank},"

    @property
    def words(self) -> str:
        """For the reader."""
        when = f"after step {self.step}" if self.step else "before the first step"
        return f"call {self.number} {when}, rank {self.rank}"
