"""In which steps all of a large model is recorded; pure, and the same for probes and readers."""

from __future__ import annotations

SMALL_BYTES_PER_RANK = 1 << 21
"""A quantity of no more than this is recorded in full after every step."""


def is_due(step: int, elements: int, ranks: int) -> bool:
    """Whether all is recorded of `step`, from 1.

    Of every step of a small model; of a large one the first, second, fourth, eighth ... In others the
    optimizer's state is left out, but for counters, and the gradients as it got them: what is wrong with
    either shows in the weights, which are recorded after every step, as gradients before clipping and the
    norm are. So is left out whether something else than the optimizer has written to weights since the step
    before. None of it depends on how the model is sharded.

    Args:
        elements: of all parameters, each counted whole and once; taken for fp32.
    """
    return elements * 4 <= SMALL_BYTES_PER_RANK * ranks or step & (step - 1) == 0
