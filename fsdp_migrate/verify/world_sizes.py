"""What can be compared of two jobs that run on other numbers of ranks; pure.

Whole tensors can: weights, gradients, the optimizer's state. So can what all ranks know alike, and means over
them, as long as the ranks together take in the same batch. What belongs to one rank cannot: its inputs, its
random numbers, its part of the loss.
"""

from __future__ import annotations

from collections import Counter

from fsdp_migrate.verify.record import ArmRecord


def differ(original: ArmRecord, candidate: ArmRecord) -> bool:
    """Whether the arms ran on other numbers of ranks."""
    return original.ranks != candidate.ranks


def mean_loss(arm: ArmRecord, step: int) -> float | None:
    """Mean over ranks and backward passes; `None` without one."""
    losses = [loss for one in arm.steps.get(step, []) for loss in one.own_losses]
    return sum(losses) / len(losses) if losses else None


def passes(arm: ArmRecord) -> int:
    """Backward passes of a step, on rank 0; the median over steps."""
    counts = sorted(len(facts[0].reductions) for facts in arm.steps.values() if facts)
    return counts[len(counts) // 2] if counts else 0


def reduce_alike(original: ArmRecord, candidate: ArmRecord) -> bool:
    """Whether both have to reduce gradients, in equally many backward passes."""
    return passes(original) == passes(candidate) and 1 not in (original.ranks, candidate.ranks)


def same_inputs(original: ArmRecord, candidate: ArmRecord, step: int) -> bool:
    """Whether all ranks together were given the same tensors in a step, whichever rank and in what order.

    They may take in the same batch and not be: where a rank's part of it is larger, so are its tensors. Where
    none were seen, nothing says that they are.
    """
    given = _inputs(original, step)
    return bool(given) and given == _inputs(candidate, step)


def _inputs(arm: ArmRecord, step: int) -> Counter[str]:
    return Counter(each for one in arm.steps.get(step, []) for each in one.inputs)


def batches_are_equal(original: ArmRecord, candidate: ArmRecord) -> bool:
    """Whether that is so in every step that both made."""
    steps = set(original.steps) & set(candidate.steps)
    return bool(steps) and all(same_inputs(original, candidate, step) for step in steps)


def notice(original: ArmRecord, candidate: ArmRecord) -> str:
    """What the reader should know of such a comparison."""
    lost = ["inputs and random numbers of each rank", "buffers that differ by rank", "what is printed"]
    if passes(original) != passes(candidate):
        lost += ["losses, and how often gradients are reduced (there are more backward passes in one)"]
    return (
        f"the original ran on {original.ranks} processes and the candidate on {candidate.ranks}: whole "
        "tensors, norms and mean losses are compared, as if the ranks together took in the same batch; not "
        f"compared: {', '.join(lost)}"
    )
