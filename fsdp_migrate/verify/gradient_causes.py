"""Rules for what happens to gradients between the backward pass and the optimizer; pure."""

from __future__ import annotations

import math

import numpy as np

from fsdp_migrate.verify.evidence import Evidence
from fsdp_migrate.verify.model import CLIPPED, Cause
from fsdp_migrate.verify.noise import clipped
from fsdp_migrate.verify.record import ArmRecord, Part, widen
from fsdp_migrate.verify.whole import assemble

_SAME_FACTOR = 1e-4


def reduced_passes(arm: ArmRecord) -> float:
    """Backward passes per optimizer step that reduced gradients; the median over steps, on rank 0."""
    counts = sorted(sum(1 for one in facts[0].reductions if one) for facts in arm.steps.values() if facts)
    return counts[len(counts) // 2] if counts else 0


def norms_reported(arm: ArmRecord) -> int:
    """Calls of torch's clipping functions in all steps, on rank 0."""
    return sum(len(facts[0].clips) for facts in arm.steps.values() if facts)


def never_over_limit(arm: ArmRecord) -> bool:
    """Whether the job limits the norm, and no step's norm exceeded the limit (rank 0)."""
    limited = False
    for step, facts in arm.steps.items():
        for clip, norms in zip(facts[0].clips if facts else (), arm.clipped_norms(step), strict=False):
            if clip.max_norm is not None and math.isfinite(clip.max_norm):
                limited = True
                if norms[0] > clip.max_norm:
                    return False
    return limited


def reductions(evidence: Evidence) -> Cause | None:
    """Gradients are reduced more or less often."""
    before, after = reduced_passes(evidence.original), reduced_passes(evidence.candidate)
    if before == after or not before:
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


def clipping(evidence: Evidence) -> Cause | None:
    """Clipping is gone, or works with a norm of its own on every rank."""
    original, candidate = evidence.original, evidence.candidate
    if not clipped(original) or evidence.first is None:
        return None
    for step in range(1, candidate.last_step + 1):
        for norms in candidate.clipped_norms(step):
            if max(norms) - min(norms) > _SAME_FACTOR * max(norms) and _equal_norms(original, step):
                return _local_norms(", ".join(f"{norm:.4g}" for norm in norms), step, "norm")
        factors = clip_factors(candidate, step)
        if len(factors) > 1 and max(factors.values()) - min(factors.values()) > _SAME_FACTOR:
            return _local_norms(", ".join(f"{factor:.4g}" for factor in factors.values()), step, "factor")
        if factors and all(abs(one - 1) < 1e-9 for one in factors.values()) and _is_scaled(original, step):
            return Cause(
                "not-clipped",
                f"the original clipped the gradients of step {step} and the candidate did not",
                "call torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm) before optimizer.step()",
            )
    return None


def _local_norms(numbers: str, step: int, what: str) -> Cause:
    return Cause(
        "local-norm",
        f"clipping used a local norm: in step {step} its {what} differs by rank ({numbers}), so every "
        "rank scaled "
        "its part of the gradients in another way",
        "use torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm), which reduces over DTensors, and "
        ".full_tensor() of what it returns",
    )


def _equal_norms(arm: ArmRecord, step: int) -> bool:
    return all(max(norms) - min(norms) <= _SAME_FACTOR * max(norms) for norms in arm.clipped_norms(step))


def _is_scaled(arm: ArmRecord, step: int) -> bool:
    return any(abs(one - 1) > 1e-6 for one in clip_factors(arm, step).values())


def clip_factors(arm: ArmRecord, step: int) -> dict[int, float]:
    """By which factor each rank scaled its gradients between its last backward pass and the step."""
    sums: dict[int, list[float]] = {}
    before, after = arm.tensors(step, "gradient"), arm.tensors(step, CLIPPED)
    for name, parts in before.items():
        scaled = {(part.rank, part.place): part for part in after.get(name, [])}
        for part in parts:
            other = scaled.get((part.rank, part.place))
            if other is None or part.stored is None or other.stored is None:
                continue
            values = part.values()
            total = sums.setdefault(part.rank, [0.0, 0.0])
            total[0] += float(values @ other.values())
            total[1] += float(values @ values)
    return {
        rank: top / bottom for rank, (top, bottom) in sorted(sums.items()) if bottom and math.isfinite(bottom)
    }


def scale(evidence: Evidence) -> Cause | None:
    """All gradients are the same multiple of what they were."""
    first = evidence.first
    if first is None or first.quantity not in ("loss", "gradient"):
        return None
    factors = []
    for name, parts in evidence.original.tensors(first.step, "gradient").items():
        other = evidence.candidate.tensors(first.step, "gradient").get(name)
        factor = _ratio(parts, other) if other else None
        if factor is not None:
            factors.append(factor)
    if not factors or max(factors) - min(factors) > 1e-3 * abs(factors[0]) or abs(factors[0] - 1) < 1e-2:
        return None
    return Cause(
        "gradient-scale",
        f"all gradients of step {first.step} are {factors[0]:.4g} times the original's: they are averaged "
        "over another "
        f"number (ranks: {evidence.original.ranks})",
        "check set_gradient_divide_factor, the division of the loss by the number of micro-batches, and "
        "the mesh",
    )


def _ratio(left: list[Part], right: list[Part]) -> float | None:
    a, b = assemble(left), assemble(right)
    if a.stored is None or b.stored is None or a.shape != b.shape:
        return None
    x, y = widen(a.stored, a.dtype), widen(b.stored, b.dtype)
    square = float(x @ x)
    if not square:
        return None
    factor = float(x @ y) / square
    return factor if float(np.linalg.norm(y - factor * x)) <= 1e-3 * float(np.linalg.norm(y)) else None
