"""Rules for what happens to gradients between the backward pass and the optimizer; pure."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fsdp_migrate.verify import world_sizes
from fsdp_migrate.verify.compare import difference
from fsdp_migrate.verify.evidence import Evidence
from fsdp_migrate.verify.model import CLIPPED, Cause
from fsdp_migrate.verify.record import ArmRecord, Part, widen
from fsdp_migrate.verify.sums import sums_of
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
    if before == after or not before or world_sizes.differ(evidence.original, evidence.candidate):
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


def clip_differences(original: ArmRecord, candidate: ArmRecord) -> Iterator[tuple[int, str, float, float]]:
    """Step, argument, and its values in both arms, where a clipping call has another one."""
    for step in sorted(set(original.steps) & set(candidate.steps)):
        left, right = (arm.steps[step][0].clips for arm in (original, candidate))
        for a, b in zip(left, right, strict=False):
            if a.norm_type != b.norm_type and "with_norm" not in a.function + b.function:
                yield step, "norm_type", a.norm_type, b.norm_type
            if a.max_norm is not None and b.max_norm is not None and a.max_norm != b.max_norm:
                yield step, "max_norm", a.max_norm, b.max_norm


def clip_arguments(evidence: Evidence) -> Cause | None:
    """Clipping was asked for another limit, or another kind of norm."""
    for step, what, before, after in clip_differences(evidence.original, evidence.candidate):
        return Cause(
            "clip-arguments",
            f"gradients are clipped with {what} {after:g} in the candidate and {before:g} in the original "
            f"(step {step})",
            f"give torch.nn.utils.clip_grad_norm_ the {what} of the original",
        )
    return None


def clipping(evidence: Evidence) -> Cause | None:
    """Clipping is gone, or works with a norm of its own on every rank."""
    original, candidate = evidence.original, evidence.candidate
    if not original.clips:
        return None
    for step in range(1, min(original.last_step, candidate.last_step) + 1):
        if own := _whole_for_parts(original, candidate, step):
            return own
        clipped = {name for name in original.tensors(step, "gradient") if _is_changed(original, step, name)}
        for norms in candidate.clipped_norms(step):
            if max(norms) - min(norms) > _SAME_FACTOR * max(norms) and equal_norms(original, step):
                return _local_norms(", ".join(f"{norm:.4g}" for norm in norms), step, "norm")
        if part := _clipped_in_part(original, candidate, step):
            return part
        factors = clip_factors(candidate, step, clipped)
        if len(factors) > 1 and max(factors.values()) - min(factors.values()) > _SAME_FACTOR:
            return _local_norms(", ".join(f"{factor:.4g}" for factor in factors.values()), step, "factor")
        unchanged = factors and all(abs(one - 1) < 1e-9 for one in factors.values())
        if unchanged and _is_scaled(original, step) and not candidate.within_limits(step):
            return Cause(
                "not-clipped",
                f"the original clipped the gradients of step {step} and the candidate did not",
                "call torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm) before optimizer.step()",
            )
    return None


def _whole_for_parts(original: ArmRecord, candidate: ArmRecord, step: int) -> Cause | None:
    """FSDP1 let torch's function see a rank's own part of the gradients alone; FSDP2 gives it DTensors."""
    if original.ranks != candidate.ranks or original.kind != "FSDP1":
        return None
    pairs = zip(original.clipped_norms(step), candidate.clipped_norms(step), strict=False)
    for call, (left, right) in enumerate(pairs):
        kind = original.steps[step][0].clips[call].norm_type
        whole = max(left) if math.isinf(kind) else sum(norm**kind for norm in left) ** (1 / kind)
        apart = max(left) - min(left) > _SAME_FACTOR * max(left)
        if apart and all(abs(norm - whole) <= 1e-3 * whole for norm in right):
            parts = ", ".join(f"{norm:.4g}" for norm in left)
            return Cause(
                "norm-of-parts",
                f"the original took the norm of each rank's own part of the gradients ({parts} in step "
                f"{step}), as torch.nn.utils.clip_grad_norm_ does under FSDP1, and the candidate the norm of "
                f"all of them ({right[0]:.4g}), which these parts make together",
                "none, if this is wanted: it is what clipping is meant to be, and no longer what was done. "
                "To compare the rest, give the original model.clip_grad_norm_(max_norm) of FSDP1",
            )
    return None


def _clipped_in_part(original: ArmRecord, candidate: ArmRecord, step: int) -> Cause | None:
    """Some tensors are scaled and others are not, where the original scales all of them alike."""
    if not _is_scaled(original, step):
        return None
    after = candidate.tensors(step, CLIPPED)
    whole = {
        name: (assemble(parts), assemble(after[name]))
        for name, parts in candidate.tensors(step, "gradient").items()
        if name in after
    }
    kept = sorted(
        name
        for name, (left, right) in whole.items()
        if not left.is_zero() and difference(left, right) is None and _is_changed(original, step, name)
    )
    if not kept or len(kept) == len(whole):
        return None
    return Cause(
        "clipped-in-part",
        f"the gradients of {len(kept)} of {len(whole)} parameters ({', '.join(kept[:3])}) are not clipped in "
        f"step {step} of the candidate, and those of the others are",
        "clip model.parameters() of the whole model in one call",
    )


def _is_changed(arm: ArmRecord, step: int, name: str) -> bool:
    """Whether clipping changed this gradient; another model's, of which the loss is a part, it does not."""
    before, after = arm.tensors(step, "gradient").get(name), arm.tensors(step, CLIPPED).get(name)
    return bool(before and after) and difference(assemble(before or []), assemble(after or [])) is not None


def _local_norms(numbers: str, step: int, what: str) -> Cause:
    return Cause(
        "local-norm",
        f"clipping used a local norm: in step {step} its {what} differs by rank ({numbers}), so every "
        "rank scaled "
        "its part of the gradients in another way",
        "use torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm), which reduces over DTensors, and "
        ".full_tensor() of what it returns",
    )


def equal_norms(arm: ArmRecord, step: int) -> bool:
    """Whether every rank works with the same norm in every clipping call of a step."""
    return all(max(norms) - min(norms) <= _SAME_FACTOR * max(norms) for norms in arm.clipped_norms(step))


def _is_scaled(arm: ArmRecord, step: int) -> bool:
    return any(abs(one - 1) > 1e-6 for one in clip_factors(arm, step).values())


def clip_factors(arm: ArmRecord, step: int, names: set[str] | None = None) -> dict[int, float]:
    """By which factor each rank scaled its gradients between its last backward pass and the step.

    Args:
        names: of which tensors; all where there are none, for not every model of a job is clipped in a step.
    """
    sums: dict[int, list[float]] = {}
    before, after = arm.tensors(step, "gradient"), arm.tensors(step, CLIPPED)
    for name, parts in before.items():
        if names and name not in names:
            continue
        scaled = {(part.rank, part.place): part for part in after.get(name, [])}
        for part in parts:
            other = scaled.get((part.rank, part.place))
            if other is None:
                continue
            values, scaled_values = _alike(part, other)
            total = sums.setdefault(part.rank, [0.0, 0.0])
            total[0] += float(values @ scaled_values)
            total[1] += float(values @ values)
    return {
        rank: top / bottom for rank, (top, bottom) in sorted(sums.items()) if bottom and math.isfinite(bottom)
    }


def _alike(left: Part, right: Part) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Elements of both, or projections where one of them has no elements: a factor is the same in either."""
    if left.stored is not None and right.stored is not None:
        return left.values(), right.values()
    return np.array(sums_of(left).projections), np.array(sums_of(right).projections)


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
    return _scaled(evidence, first.step, factors[0])


def _loss_of_step(arm: ArmRecord, step: int) -> float:
    """Summed over backward passes, mean over ranks."""
    return sum(sum(one.losses) for one in arm.steps[step]) / len(arm.steps[step])


def _scaled(evidence: Evidence, step: int, factor: float) -> Cause:
    original, candidate = evidence.original, evidence.candidate
    left, right = (_loss_of_step(arm, step) for arm in (original, candidate))
    words = f"all gradients of step {step} are {factor:.4g} times the original's"
    if left and abs(right / left - factor) < 1e-2 * abs(factor):
        micro = len(candidate.steps[step][0].losses)
        return Cause(
            "loss-scale",
            f"{words}, and so is the loss that backward() is called on ({micro} backward passes in a step, "
            f"{candidate.ranks} ranks)",
            "divide the loss by the number of micro-batches, and scale it by a gradient scaler, as the "
            "original does",
        )
    return Cause(
        "gradient-scale",
        f"{words} and the loss is the same: gradients are averaged over another number (ranks: "
        f"{original.ranks})",
        "check set_gradient_divide_factor, communication hooks, and the mesh",
    )


def _ratio(left: list[Part], right: list[Part]) -> float | None:
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
    return factor if float(np.linalg.norm(y - factor * x)) <= 1e-3 * float(np.linalg.norm(y)) else None
