"""Rules for gradient scalers, and for how many backward passes a step takes; pure.

A scaler skips the optimizer where gradients are infinite, so that arms whose scalers differ soon differ in
what a step is: what is compared then is one batch with another.
"""

from __future__ import annotations

import math

from fsdp_migrate.verify import world_sizes
from fsdp_migrate.verify.evidence import Evidence
from fsdp_migrate.verify.model import Cause
from fsdp_migrate.verify.record import ArmRecord, StepFacts

_SAME_RATIO = 1e-2
_SAME_SIZE = 0.25


def scalers(evidence: Evidence) -> Cause | None:
    """The scale of losses is another one, or a skipped step is not skipped."""
    pairs = _first_ranks(evidence)
    shown = next((pair for pair in pairs if any(one.scales for one in pair)), None)
    if shown is None:
        return None
    left, right = shown
    if bool(left.scales) != bool(right.scales):
        if _near(left.losses, right.losses):  # an older record, which does not tell scales
            return None
        arms = ("original", "candidate") if left.scales else ("candidate", "original")
        return Cause(
            "scaler-missing" if left.scales else "scaler-added",
            f"losses are multiplied by {(left.scales or right.scales)[0]:g} before backward() in the "
            f"{arms[0]}, by a gradient scaler, and by nothing in the {arms[1]}",
            "scale with torch.amp.GradScaler(device), enabled where the original's ShardedGradScaler is",
        )
    if left.scales[0] != right.scales[0]:
        return Cause(
            "scaler-start",
            f"the gradient scaler starts at {right.scales[0]:g} in the candidate and {left.scales[0]:g} in "
            "the original, so that it skips other steps for infinite gradients",
            "give torch.amp.GradScaler the init_scale of the original",
        )
    return next((cause for pair in pairs if (cause := _skipped(*pair)) is not None), None)


def _near(left: tuple[float, ...], right: tuple[float, ...]) -> bool:
    """Whether the first losses are of one size, whatever scaled them."""
    return bool(left and right) and math.isclose(left[0], right[0], rel_tol=_SAME_SIZE)


def _skipped(left: StepFacts, right: StepFacts) -> Cause | None:
    arms = (("original", left, "candidate", right), ("candidate", right, "original", left))
    for arm, skips, other, steps in arms:
        if len(skips.losses) > len(steps.losses) and len(set(skips.scales)) > len(set(steps.scales)):
            return Cause(
                "scaler-bypassed",
                f"before step {skips.step} the gradient scaler of the {arm} lowers its scale from "
                f"{max(skips.scales):g} to {min(skips.scales):g} and skips the optimizer, because gradients "
                f"are infinite; the {other} steps",
                "call scaler.step(optimizer) and scaler.update(), not optimizer.step()",
            )
    return None


def clipped_while_scaled(evidence: Evidence) -> Cause | None:
    """Clipping works with gradients that still have the scaler's factor, in one arm."""
    first = evidence.first
    if first is None or first.quantity != "gradient norm" or not first.original or not first.candidate:
        return None
    facts = evidence.candidate.steps.get(first.step, [])
    scale = facts[0].scales[-1] if facts and facts[0].scales else 0.0
    for arm, ratio in (
        ("candidate", first.candidate / first.original),
        ("original", first.original / first.candidate),
    ):
        if scale > 1 and abs(ratio / scale - 1) < _SAME_RATIO:
            return Cause(
                "clipped-while-scaled",
                f"the norm that clipping works with is {scale:g} times as large in the {arm}: its gradients "
                "still have the scaler's factor there",
                "call scaler.unscale_(optimizer) before clipping, as the other program does",
            )
    return None


def other_passes(evidence: Evidence) -> Cause | None:
    """A step takes more or fewer backward passes, from the same data so far."""
    for left, right in _first_ranks(evidence):
        before, after = len(left.losses), len(right.losses)
        shared = min(len(left.inputs), len(right.inputs))
        if before != after:
            if not shared or left.inputs[:shared] != right.inputs[:shared]:
                return None
            return Cause(
                "other-passes",
                f"backward() is called {after} times for step {left.step} in the candidate and {before} "
                "times in the original, from the same data so far: gradients are accumulated over another "
                "number of micro-batches, or a step is skipped",
                "accumulate over as many micro-batches as the original does",
            )
        if left.inputs != right.inputs:
            return None
    return None


def turns(evidence: Evidence) -> Cause | None:
    """A step is that of another optimizer of the job."""
    original, candidate = evidence.original.optimizers, evidence.candidate.optimizers
    for left, right in zip(original, candidate, strict=False):
        mine, others = frozenset(left.settings), frozenset(right.settings)
        if mine and others and not mine & others and _holds(evidence.original, others):
            return Cause(
                "optimizer-turns",
                f"step {left.step} is that of the optimizer of {min(others)} ({len(others)} parameters) in "
                f"the candidate and of {min(mine)} ({len(mine)}) in the original: the optimizers take turns "
                "in another order, or one of them steps more often",
                "step the optimizers in the order of the original, and as often",
            )
    return None


def _holds(arm: ArmRecord, names: frozenset[str]) -> bool:
    return any(frozenset(one.settings) == names for one in arm.optimizers)


def _first_ranks(evidence: Evidence) -> list[tuple[StepFacts, StepFacts]]:
    """What rank 0 of both arms saw of each step; nothing where the arms ran on other numbers of ranks."""
    if world_sizes.differ(evidence.original, evidence.candidate):
        return []
    steps = sorted(set(evidence.original.steps) & set(evidence.candidate.steps))
    both = ((evidence.original.steps[step], evidence.candidate.steps[step]) for step in steps)
    return [(left[0], right[0]) for left, right in both if left and right]
