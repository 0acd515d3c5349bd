"""Rules for gradients that are clipped in another way than by one factor; pure."""

from __future__ import annotations

import numpy as np

from fsdp_migrate.verify.evidence import Evidence
from fsdp_migrate.verify.model import CLIPPED, Cause
from fsdp_migrate.verify.record import ArmRecord

_BESIDE = 1e-2
"""Part of a clipped gradient that is not along the gradient; rounding of bfloat16 is below it."""


def not_by_a_factor(evidence: Evidence) -> Cause | None:
    """A norm that is limited scales all elements alike; `clip_grad_value_` changes the large ones alone."""
    original, candidate = evidence.original, evidence.candidate
    if not original.clips:
        return None
    for step in range(1, min(original.last_step, candidate.last_step) + 1):
        name = _bent(candidate, step)
        if name and not _bent(original, step):
            return Cause(
                "not-one-factor",
                f"the gradient of {name} is not scaled as a whole between backward() and step {step} in the "
                "candidate, and in the original it is: single elements are limited, not the norm",
                "limit the norm: torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)",
            )
    return None


def _bent(arm: ArmRecord, step: int) -> str:
    """A tensor whose clipped gradient has another direction; "" without one."""
    before, after = arm.tensors(step, "gradient"), arm.tensors(step, CLIPPED)
    for name, parts in before.items():
        clipped = {(part.rank, part.place): part for part in after.get(name, [])}
        for part in parts:
            other = clipped.get((part.rank, part.place))
            if other is None or part.stored is None or other.stored is None:
                continue
            values, results = part.values(), other.values()
            square, size = float(values @ values), float(np.linalg.norm(results))
            if not square or not size or not np.isfinite(square + size):
                continue
            along = float(values @ results) / square
            if float(np.linalg.norm(results - along * values)) > _BESIDE * size:
                return name
    return ""
