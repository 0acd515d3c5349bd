"""Rules for how gradients are clipped; pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fsdp_migrate.verify.distance import difference
from fsdp_migrate.verify.evidence import Evidence
from fsdp_migrate.verify.model import CLIPPED, Cause
from fsdp_migrate.verify.record import ArmRecord, Part
from fsdp_migrate.verify.sums import sums_of
from fsdp_migrate.verify.whole import assemble

_SAME_FACTOR = 1e-4
_SAME_LIMIT = 2**-8
"""What bfloat16 rounds, relatively: how far elements limited in it may stand from a limit in fp32."""


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


def element_limits(evidence: Evidence) -> Cause | None:
    """`clip_grad_value_` limits every element by itself: in one arm alone, or to another value."""
    first = evidence.first
    if first is None or first.quantity != CLIPPED:
        return None
    step = first.step
    before, after = (_limit_of_elements(arm, step) for arm in (evidence.original, evidence.candidate))
    if before is None and after is not None:
        return Cause(
            "limits-elements",
            f"the elements of gradients are limited to {after:.4g} in step {step} of the candidate, each by "
            "itself, and not in the original",
            "limit the norm, torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm), or nothing, as "
            "the original does",
        )
    if before is None or (after is not None and abs(before - after) <= _SAME_LIMIT * before):
        return None
    return Cause(
        "elements-not-limited",
        f"the elements of gradients are limited to {before:.4g} in step {step} of the original, each by "
        f"itself, and {f'to {after:.4g}' if after else 'not to that'} in the candidate",
        f"call torch.nn.utils.clip_grad_value_(model.parameters(), {before:.4g}) before optimizer.step(): a "
        "rank limits its own part",
    )


def _limit_of_elements(arm: ArmRecord, step: int) -> float | None:
    """What most of the gradients that are changed before the step are cut off at; `None` without it."""
    before, after = arm.tensors(step, "gradient"), arm.tensors(step, CLIPPED)
    pairs = [(a, b) for name in before for a, b in _same_parts(before[name], after.get(name, []))]
    kept = [(a.values(), b.values()) for a, b in pairs if a.stored is not None and b.stored is not None]
    changed = [(a, b) for a, b in kept if not np.array_equal(a, b) and np.isfinite(a).all()]
    limit = max((float(np.abs(b).max()) for _, b in changed), default=0.0)
    cut = sum(np.allclose(b, np.clip(a, -limit, limit), rtol=_SAME_LIMIT, atol=0.0) for a, b in changed)
    return limit if 2 * cut > len(changed) else None


def _same_parts(left: list[Part], right: list[Part]) -> Iterator[tuple[Part, Part]]:
    """Parts of the same rank and place."""
    others = {(part.rank, part.place): part for part in right}
    for part in left:
        other = others.get((part.rank, part.place))
        if other is not None:
            yield part, other


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
        if part := _clipped_in_part(original, candidate, step, clipped):
            return part
        scaled = _scaling(candidate, step, clipped)
        factors = [one.factor for one in scaled]
        spread = max(factors, default=0.0) - min(factors, default=0.0)
        if spread > _SAME_FACTOR and spread > max(2 * one.beside for one in scaled):
            return _local_norms(", ".join(f"{factor:.4g}" for factor in factors), step, "factor")
        unchanged = factors and all(abs(one - 1) < 1e-9 for one in factors)
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


def _clipped_in_part(original: ArmRecord, candidate: ArmRecord, step: int, clipped: set[str]) -> Cause | None:
    """Some tensors are scaled and others are not, where the original scales all of them alike.

    Args:
        clipped: the tensors that the original changes.
    """
    after = candidate.tensors(step, CLIPPED)
    whole = {
        name: (assemble(parts), assemble(after[name]))
        for name, parts in candidate.tensors(step, "gradient").items()
        if name in after and name in clipped
    }
    kept = sorted(
        name
        for name, (left, right) in whole.items()
        if not left.is_zero() and difference(left, right) is None
    )
    if not kept or len(kept) == len(whole):
        return None
    less = [1 - one.factor for one in _scaling(original, step, clipped)]
    rest = [1 - one.factor for one in _scaling(candidate, step, set(whole) - set(kept))]
    if max(rest, default=0.0) < 0.1 * max(less, default=0.0):  # these are changed by something else
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
    return any(abs(one.factor - 1) > 1e-6 for one in _scaling(arm, step))


@dataclass(frozen=True, slots=True)
class _Scaled:
    """What became of one rank's gradients between its last backward pass and the step.

    Args:
        factor: by which they are scaled.
        beside: how much of them was changed in another way (a term added, noise), per unit of gradient.
    """

    factor: float
    beside: float


def _scaling(arm: ArmRecord, step: int, names: set[str] | None = None) -> list[_Scaled]:
    """By which factor each rank scaled its gradients, rank by rank where it has any.

    Args:
        names: of which tensors; all where there are none, for not every model of a job is clipped in a step.
    """
    sums: dict[int, NDArray[np.float64]] = {}
    before, after = arm.tensors(step, "gradient"), arm.tensors(step, CLIPPED)
    for name, parts in before.items():
        if names and name not in names:
            continue
        for part, other in _same_parts(parts, after.get(name, [])):
            x, y = _alike(part, other)
            products = np.array((float(x @ y), float(x @ x), float(y @ y)))
            sums[part.rank] = sums.get(part.rank, np.zeros(3)) + products
    known = [found for _, found in sorted(sums.items()) if found[1] and np.isfinite(found).all()]
    return [
        _Scaled(float(xy / xx), math.sqrt(max(0.0, float(yy / xx - (xy / xx) ** 2)))) for xy, xx, yy in known
    ]


def _alike(left: Part, right: Part) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Elements of both, or projections where one of them has no elements: a factor is the same in either."""
    if left.stored is not None and right.stored is not None:
        return left.values(), right.values()
    return np.array(sums_of(left).projections), np.array(sums_of(right).projections)
