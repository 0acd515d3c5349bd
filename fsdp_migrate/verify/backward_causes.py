"""Rules for what each backward pass starts from, and which of them reduce gradients; pure."""

from __future__ import annotations

from collections import Counter

from fsdp_migrate.verify import world_sizes
from fsdp_migrate.verify.evidence import Evidence
from fsdp_migrate.verify.model import Cause
from fsdp_migrate.verify.record import ArmRecord, StepFacts
from fsdp_migrate.verify.sharding_causes import listed

_SAME_RATIO = 1e-4
_NO_ROUNDING = 1e-3


def reducing_passes(arm: ArmRecord) -> tuple[bool, ...]:
    """Which backward passes of a step reduce gradients; as in most steps, on rank 0."""
    seen = Counter(tuple(bool(one) for one in facts[0].reductions) for facts in arm.steps.values() if facts)
    return seen.most_common(1)[0][0] if seen else ()


def reduces_another_pass(original: ArmRecord, candidate: ArmRecord) -> bool:
    """Whether other passes reduce: as many as in the original, or some, and not its last one any more."""
    before, after = reducing_passes(original), reducing_passes(candidate)
    if len(before) != len(after) or before == after:
        return False
    return sum(before) == sum(after) or (before[-1] and any(after) and not after[-1])


def another_pass(evidence: Evidence) -> Cause | None:
    """Gradients are reduced in another backward pass."""
    if not reduces_another_pass(evidence.original, evidence.candidate):
        return None
    before, after = (_words(reducing_passes(arm)) for arm in (evidence.original, evidence.candidate))
    return Cause(
        "sync-in-another-pass",
        f"gradients are reduced in backward pass {after} in the candidate and {before} in the original: what "
        "later passes of a step leave is not in its gradients, and is added to those of the next",
        "call model.set_requires_gradient_sync(is_last_micro_batch) before each backward pass: True with the "
        "last one",
    )


def _words(passes: tuple[bool, ...]) -> str:
    numbers = [str(number) for number, reduces in enumerate(passes, 1) if reduces]
    return f"{' and '.join(numbers)} of {len(passes)}"


def loss_of_each_rank(evidence: Evidence) -> Cause | None:
    """Each rank's losses are a multiple of what they were, and another one on every rank."""
    first, original, candidate = evidence.first, evidence.original, evidence.candidate
    if first is None or first.quantity != "loss" or world_sizes.differ(original, candidate):
        return None
    pairs = zip(original.steps.get(first.step, []), candidate.steps.get(first.step, []), strict=False)
    factors = [_factor(left, right) for left, right in pairs]
    known = [factor for factor in factors if factor is not None]
    if len(known) < max(2, len(factors)) or max(known) - min(known) < _NO_ROUNDING:
        return None
    shown = ", ".join(f"{factor:.4g}" for factor in known[:8])
    return Cause(
        "loss-per-rank",
        f"the losses of step {first.step} are a multiple of the original's, another one on every rank "
        f"({shown}): they are divided by a number of the rank's own, such as its tokens, and not by one of "
        "all ranks",
        "divide by what the original divides by: the count of all ranks (all_reduce), times the number of "
        "ranks because gradients are averaged",
    )


def _factor(left: StepFacts, right: StepFacts) -> float | None:
    """By which the losses of all backward passes of a step changed; `None` where they did so unlike."""
    if len(left.losses) < 2 or len(left.losses) != len(right.losses) or not all(left.losses):
        return None
    ratios = [after / before for before, after in zip(left.losses, right.losses, strict=True)]
    return ratios[0] if max(ratios) - min(ratios) <= _SAME_RATIO * abs(ratios[0]) else None


def missing_gradients(evidence: Evidence) -> Cause | None:
    """Parameters have a gradient in one arm alone."""
    lonely = [one for one in evidence.comparison.unmatched if one[1] == "gradient"]
    if not lonely:
        return None
    step, _, _, lacking = lonely[0]
    names = sorted(one[2] for one in lonely if (one[0], one[3]) == (step, lacking))
    has = "original" if lacking == "candidate" else "candidate"
    return Cause(
        "gradients-missing",
        f"{len(names)} parameters get a gradient in step {step} of the {has} and none in the {lacking} "
        f"({listed(names)}): they are frozen there, or take no part in the loss",
        "freeze and unfreeze by the names that parameters have now, and compute the loss of the original",
    )
