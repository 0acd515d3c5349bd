"""After which steps a large model's optimizer state is recorded; pure, the same for probes and readers."""

from __future__ import annotations

SMALL_BYTES_PER_RANK = 1 << 21
"""A quantity of no more than this is recorded in full after every step."""


def states_are_due(step: int, elements: int, ranks: int) -> bool:
    """Whether more than counters is recorded of the optimizer's state after `step`, from 1.

    After every step of a small model; of a large one after the first, second, fourth, eighth ...: what is
    wrong with a state shows in the weights of the next step. Neither depends on how the model is sharded.

    Args:
        elements: of all parameters, each counted whole and once; taken for fp32.
    """
    return elements * 4 <= SMALL_BYTES_PER_RANK * ranks or step & (step - 1) == 0
