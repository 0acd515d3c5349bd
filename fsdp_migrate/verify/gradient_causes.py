"""Rules for what happens to gradients between the backward pass and the optimizer; pure."""

from __future__ import annotations

import math

import numpy as np

from fsdp_migrate.verify import world_sizes
from fsdp_migrate.verify.backward_causes import reduces_another_pass
from fsdp_migrate.verify.evidence import Evidence
from fsdp_migrate.verify.model import CLIPPED, Cause
from fsdp_migrate.verify.record import ArmRecord, Part, widen
from fsdp_migrate.verify.whole import assemble

_SAME = 1e-2
"""Gradients that are added up in bfloat16 are a multiple of others to this part of themselves."""
_SAME_LOSS = 1e-4
_FOLLOWS = 0.25
"""Part of what a factor is from 1 that gradients of a loss multiplied by it may be off."""
_LOSSES = 2
"""So many losses make a factor of theirs no accident."""


def reduced_passes(arm: ArmRecord) -> float:
    """Backward passes per optimizer step that reduced gradients; the median over steps, on rank 0."""
    counts = sorted(sum(1 for one in facts[0].reductions if one) for facts in arm.steps.values() if facts)
    return counts[len(counts) // 2] if counts else 0


def reductions(evidence: Evidence) -> Cause | None:
    """Gradients are reduced more or less often."""
    before, after = reduced_passes(evidence.original), reduced_passes(evidence.candidate)
    if "DDP" in (evidence.original.kind, evidence.candidate.kind):
        return None  # it reduces gradients out of sight
    if before == after or not before or world_sizes.differ(evidence.original, evidence.candidate):
        return None
    if reduces_another_pass(evidence.original, evidence.candidate):
        return None
    if after > before:
        return Cause(
            "no-sync-dropped",
            f"gradients were reduced {_times(after)} per step in the candidate and {_times(before)} in the "
            "original: "
            "the no_sync translation is missing",
            "call model.set_requires_gradient_sync(is_last_micro_batch) before each backward pass",
        )
    return Cause(
        "sync-missing",
        f"gradients were reduced {_times(after)} per step in the candidate and {_times(before)} in the "
        "original: "
        "synchronisation stays off for too long",
        "call model.set_requires_gradient_sync(True) before the last backward pass of each step",
    )


def _times(count: float) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(int(count), f"{count} times")


def unsynced_gradients_zeroed(evidence: Evidence) -> Cause | None:
    """`zero_grad` after a backward pass that reduced nothing."""
    first = evidence.first
    if first is None or first.quantity not in ("gradient", CLIPPED):
        return None
    for step in range(1, first.step + 1):
        for facts in evidence.candidate.steps.get(step, [])[:1]:
            unreduced = [at for at in facts.zeroed if at and not facts.reductions[at - 1]]
            if unreduced:
                return Cause(
                    "unsynced-gradients-kept",
                    f"zero_grad() is called in step {step} after backward pass {unreduced[0]}, which reduced "
                    "nothing: FSDP1 then drops its gradients, FSDP2 keeps them out of reach of zero_grad() "
                    "and adds them to the next ones",
                    "turn synchronisation on before gradients are dropped, or drop them by a backward pass "
                    "of loss * 0 with synchronisation followed by zero_grad()",
                )
    return None


def zeroed_less(evidence: Evidence) -> Cause | None:
    """Gradients of the step before are still there."""
    first = evidence.first
    if first is None or first.step < 2 or first.quantity not in ("gradient", CLIPPED):
        return None
    before, after = (
        sum(len(facts[0].zeroed) for step, facts in arm.steps.items() if step <= first.step and facts)
        for arm in (evidence.original, evidence.candidate)
    )
    if after >= before:
        return None
    return Cause(
        "not-zeroed",
        f"zero_grad() was called {_times(before)} before step {first.step} in the original and "
        f"{_times(after)} in the candidate: gradients of earlier steps are added in",
        "call optimizer.zero_grad() after each step",
    )


def dropped(evidence: Evidence) -> Cause | None:
    """`zero_grad` between the last backward pass and the step."""
    for step in sorted(set(evidence.original.steps) & set(evidence.candidate.steps)):
        if _is_dropped(evidence.candidate, step) and not _is_dropped(evidence.original, step):
            return Cause(
                "gradients-dropped",
                "zero_grad() is called between the last backward pass and optimizer.step() in step "
                f"{step} of the candidate: the optimizer is given no gradients",
                "call optimizer.zero_grad() after the step, or before the first backward pass of the next",
            )
    return None


def _is_dropped(arm: ArmRecord, step: int) -> bool:
    facts = arm.steps[step][0]
    return bool(facts.losses) and len(facts.losses) in facts.zeroed


def scale(evidence: Evidence) -> Cause | None:
    """All losses, or all gradients, are the same multiple of what they were."""
    first = evidence.first
    if first is None or first.quantity not in ("loss", "gradient", CLIPPED):
        return None
    factors = _gradient_factors(evidence, first.step, CLIPPED if first.quantity == CLIPPED else "gradient")
    if first.quantity == "loss" and (factor := _loss_factor(evidence, first.step)) is not None:
        # A term that is added to the loss can be nearly the same part of it on every rank.
        follow = [abs(one - factor) <= _FOLLOWS * abs(factor - 1) for one in factors]
        return _loss_scale(evidence, first.step, factor) if 2 * sum(follow) >= len(follow) else None
    if not factors or not all(abs(one - factors[0]) <= _SAME * abs(factors[0]) for one in factors):
        return None
    return _scaled(evidence, first.step, factors[0]) if abs(factors[0] - 1) > _SAME else None


def _gradient_factors(evidence: Evidence, step: int, quantity: str) -> list[float]:
    """By which each gradient of a step is multiplied; not a number where it is changed otherwise."""
    others, parts = (arm.tensors(step, quantity) for arm in (evidence.candidate, evidence.original))
    ratios = (_ratio(mine, others[name]) for name, mine in parts.items() if name in others)
    return [one for one in ratios if one is not None]


def _loss_factor(evidence: Evidence, step: int) -> float | None:
    """By which all losses of a step are multiplied, on every rank and in every backward pass."""
    ranks = [evidence.original.steps[step], evidence.candidate.steps.get(step, [])]
    losses = [[one.losses for one in each] for each in ranks]
    if [len(one) for one in losses[0]] != [len(one) for one in losses[1]]:
        return None
    before, after = (np.array([loss for one in each for loss in one]) for each in losses)
    if len(before) < _LOSSES or not before.all() or not np.isfinite(before + after).all():
        return None
    factors = after / before
    is_one = bool(np.ptp(factors) <= _SAME_LOSS * abs(factors[0])) and abs(factors[0] - 1) > _SAME
    return float(factors[0]) if is_one else None


def _loss_of_step(arm: ArmRecord, step: int) -> float:
    """Summed over backward passes, mean over ranks."""
    return sum(sum(one.losses) for one in arm.steps[step]) / len(arm.steps[step])


def _scaled(evidence: Evidence, step: int, factor: float) -> Cause | None:
    original, candidate = evidence.original, evidence.candidate
    if evidence.first is not None and evidence.first.quantity == CLIPPED:
        return Cause(
            "gradient-scale",
            f"all gradients that the optimizer gets in step {step} are {factor:.4g} times the original's, "
            "and equal after backward(): something multiplies them in between, or no longer does",
            "look at clipping, and at what divides or multiplies .grad by hand (ranks, tokens, batches)",
        )
    left, right = (_loss_of_step(arm, step) for arm in (original, candidate))
    if left and abs(right / left - factor) < _SAME * abs(factor):
        return _loss_scale(evidence, step, factor)
    if evidence.first is not None and evidence.first.quantity == "loss":
        return None  # another loss, whose gradients happen to have the same direction
    return Cause(
        "gradient-scale",
        f"all gradients of step {step} are {factor:.4g} times the original's and the loss is the same: "
        f"gradients are averaged over another number (ranks: {original.ranks})",
        "check set_gradient_divide_factor, communication hooks, and the mesh",
    )


def _loss_scale(evidence: Evidence, step: int, factor: float) -> Cause:
    passes = len(evidence.candidate.steps[step][0].losses)
    return Cause(
        "loss-scale",
        f"the loss that backward() is called on is {factor:.4g} times the original's in step {step} "
        f"({passes} backward passes in a step, {evidence.candidate.ranks} ranks)",
        "divide the loss by what the original divides it by (micro-batches, tokens of all ranks), and scale "
        "it by a gradient scaler where the original does",
    )


def _ratio(left: list[Part], right: list[Part]) -> float | None:
    """By which a gradient is multiplied: not a number where it is changed otherwise, `None` where it is 0 or
    has another shape."""
    a, b = assemble(left), assemble(right)
    if a.shape != b.shape:
        return None
    if a.stored is not None and b.stored is not None:
        x, y = widen(a.stored, a.dtype), widen(b.stored, b.dtype)
    else:
        x, y = np.array(a.sums().projections), np.array(b.sums().projections)
    square = float(x @ x)
    if not square:
        return None
    factor = float(x @ y) / square
    return factor if float(np.linalg.norm(y - factor * x)) <= _SAME * float(np.linalg.norm(y)) else math.nan
