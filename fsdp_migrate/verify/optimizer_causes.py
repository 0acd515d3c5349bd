"""Rules for what an optimizer was told; pure."""

from __future__ import annotations

from fsdp_migrate.verify.evidence import Evidence
from fsdp_migrate.verify.model import Cause
from fsdp_migrate.verify.record import OptimizerFacts

_FOLLOWS = "initial_lr"
"""Written by schedulers, from the lr they found."""


def settings(evidence: Evidence) -> Cause | None:
    """A setting has another value, or parameters are in other groups."""
    for left, right in zip(evidence.original.optimizers, evidence.candidate.optimizers, strict=False):
        changed = _changed(left, right)
        if not changed or right.foreign:
            continue
        key = min(changed, key=lambda one: (one == _FOLLOWS, one))
        name, before, after = changed[key][0]
        if _is_another_value(left, right, key):
            return Cause(
                "optimizer-settings",
                f"{key} is {after} in the candidate's optimizer and {before} in the original's (step "
                f"{left.step}, {len(changed[key])} of {len(left.settings)} parameters)",
                f"give the optimizer{' and its scheduler' if key == 'lr' else ''} the {key} of the original",
            )
        return Cause(
            "optimizer-settings",
            f"{name} has {key}={after} in the candidate's optimizer and {before} in the original's (step "
            f"{left.step})",
            "parameters are full-shape DTensors now: groups chosen by p.ndim or p.numel() change; choose "
            "them on the model before it is sharded, or by name",
        )
    return None


def _values(left: OptimizerFacts, right: OptimizerFacts, key: str) -> list[tuple[str, object, object]]:
    """(parameter, value in the original, value in the candidate) where both have the setting."""
    found = []
    for name in sorted(set(left.settings) & set(right.settings)):
        before, after = dict(left.settings[name]), dict(right.settings[name])
        if key in before and key in after:
            found.append((name, before[key], after[key]))
    return found


def _changed(left: OptimizerFacts, right: OptimizerFacts) -> dict[str, list[tuple[str, object, object]]]:
    keys = sorted({key for pairs in left.settings.values() for key, _ in pairs})
    differing = {key: [one for one in _values(left, right, key) if one[1] != one[2]] for key in keys}
    return {key: found for key, found in differing.items() if found}


def _is_another_value(left: OptimizerFacts, right: OptimizerFacts, key: str) -> bool:
    """Whether parameters that shared a value share another one now, rather than having changed groups."""
    became: dict[object, set[object]] = {}
    for _, before, after in _values(left, right, key):
        became.setdefault(before, set()).add(after)
    return all(len(after) == 1 for after in became.values()) and not (
        set().union(*became.values()) <= set(became)
    )
