"""Says of which gradients a norm was taken, where it is not that of all of them; pure."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from fsdp_migrate.verify.evidence import Evidence
from fsdp_migrate.verify.model import Cause
from fsdp_migrate.verify.record import ArmRecord, widen
from fsdp_migrate.verify.whole import assemble

_SAME, _EUCLIDEAN = 1e-4, 2.0


def norm_of_part(evidence: Evidence) -> Cause | None:
    """The candidate's norm is that of one module's gradients, of all but those, or of matrices alone.

    A norm below its limit changes no gradient, so that nothing else shows it.
    """
    first, candidate = evidence.first, evidence.candidate
    if first is None or first.quantity != "gradient norm" or not candidate.steps[first.step][0].clips:
        return None
    facts = candidate.steps[first.step][0]
    kind = facts.clips[0].norm_type
    norms = _norms(candidate, first.step, kind)
    # Gradients are recorded as backward() leaves them, with a scaler's factor.
    seen = [first.candidate, *(first.candidate * scale for scale in set(facts.scales))]
    if not norms or _is_one(seen, norms, set(norms), kind):
        return None
    if not first.candidate:
        return Cause(
            "norm-of-nothing",
            f"the norm that the candidate clips by in step {first.step} is 0, and its gradients are not: "
            "clipping is given nothing that has a .grad",
            "give it model.parameters(): it takes parameters and not gradients, of the model as it is after "
            "fully_shard, before zero_grad()",
        )
    for words, names in _subsets(set(norms), candidate.shapes):
        if names and _is_one(seen, norms, names, kind):
            return Cause(
                "norm-of-some",
                f"the norm that the candidate clips by in step {first.step}, {first.candidate:.4g}, is that "
                f"of {words} ({len(names)} of {len(norms)} gradients), and the original's, "
                f"{first.original:.4g}, is not",
                "give clipping the parameters that the original gave it: model.parameters() of the whole "
                "model for FSDP1's method",
            )
    return None


def _norms(arm: ArmRecord, step: int, kind: float) -> dict[str, float]:
    """Of each gradient before clipping; empty for other than the 2-norm where not every element was kept."""
    found = {}
    for name, parts in arm.tensors(step, "gradient").items():
        whole = assemble(parts)
        if whole.stored is not None:
            found[name] = float(np.linalg.norm(widen(whole.stored, whole.dtype), kind))
        elif kind == _EUCLIDEAN:
            found[name] = math.sqrt(whole.sums().square)
        else:
            return {}
    return found


def _is_one(seen: list[float], norms: dict[str, float], names: set[str], kind: float) -> bool:
    """Whether the norm of these gradients is among those seen."""
    total = float(np.linalg.norm([norms[name] for name in names], kind))
    return any(math.isclose(norm, total, rel_tol=_SAME) for norm in seen)


def _subsets(names: set[str], shapes: dict[str, tuple[int, ...]]) -> Iterator[tuple[str, set[str]]]:
    """Parts of a model that people give to such a function, the largest modules first."""
    owners = {".".join(name.split(".")[:depth]) for name in names for depth in range(1, name.count(".") + 1)}
    for owner in sorted(owners, key=lambda one: (one.count("."), one)):
        inside = {name for name in names if name.startswith(f"{owner}.")}
        yield owner, inside
        yield f"all but {owner}", names - inside
    matrices = {name for name in names if len(shapes.get(name, ())) > 1}
    yield "matrices alone", matrices
    yield "vectors alone (biases, norms)", names - matrices
