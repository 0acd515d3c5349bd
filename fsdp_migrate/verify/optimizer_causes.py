"""Rules for what an optimizer was told; pure."""

from __future__ import annotations

from fsdp_migrate.verify.evidence import Evidence
from fsdp_migrate.verify.model import Cause
from fsdp_migrate.verify.record import ArmRecord, OptimizerFacts
from fsdp_migrate.verify.sharding_causes import listed

_NOT_RESUMED = (
    ": both arms resume, so load the scheduler's state, or make it with the step that the checkpoint holds, "
    "as the original does"
)
_FOLLOWS = "initial_lr"
"""Written by schedulers, from the lr they found."""


def kind(evidence: Evidence) -> Cause | None:
    """Another optimizer."""
    for left, right in zip(evidence.original.optimizers, evidence.candidate.optimizers, strict=False):
        if left.kind != right.kind:
            return Cause(
                "optimizer-kind",
                f"the optimizer is {right.kind} in the candidate and {left.kind} in the original",
                "build the same optimizer, after fully_shard",
            )
    return None


def lacking(evidence: Evidence) -> Cause | None:
    """Parameters that the original's optimizer has and the candidate's does not."""
    for left, right in zip(evidence.original.optimizers, evidence.candidate.optimizers, strict=False):
        lost = sorted(set(left.settings) - set(right.settings))
        of_another = right.settings and not set(left.settings) & set(right.settings)
        if lost and not of_another and right.foreign <= left.foreign:
            return Cause(
                "optimizer-lacks",
                f"{len(lost)} of {len(left.settings)} parameters are not in the candidate's optimizer "
                f"({listed(lost)})",
                "filters by type, name or shape see DTensors with the model's own names and shapes now; "
                "choose parameters by requires_grad and name",
            )
    return None


def holding_more(evidence: Evidence) -> Cause | None:
    """Parameters that the candidate's optimizer has and the original's does not."""
    for left, right in zip(evidence.original.optimizers, evidence.candidate.optimizers, strict=False):
        added = sorted(set(right.settings) - set(left.settings))
        if left.settings and added and set(added) <= set(evidence.original.shapes):
            return Cause(
                "optimizer-holds-more",
                f"{len(added)} parameters are in the candidate's {right.kind} and not in the original's "
                f"({listed(added)}): they are stepped, and their gradients dropped, with others",
                "give each optimizer the parameters that it has in the original",
            )
    return None


def state_of_a_checkpoint(evidence: Evidence) -> Cause | None:
    """Step counters of the optimizer's state are not the original's."""
    original, candidate = evidence.original, evidence.candidate
    counters = _counters(original, 1), _counters(candidate, 1)
    wrong = {name: (a, counters[1][name]) for name, a in counters[0].items() if counters[1].get(name, a) != a}
    at_start = _counters(original, 0), _counters(candidate, 0)
    if not wrong or any(at_start[1].get(name, a) != a for name, a in at_start[0].items()):
        return None  # or what was loaded counted otherwise already
    name, (before, after) = next(iter(wrong.items()))
    words = f"the optimizer counts {after:g} steps for {name} after the first and {before:g} in the original"
    if after < before:
        return Cause(
            "optimizer-not-loaded",
            f"{words}: its state starts anew in the candidate, the checkpoint's was not loaded",
            "load with set_optimizer_state_dict(model, optimizer, state, options=...), after fully_shard",
        )
    return Cause(
        "optimizer-step-shared",
        f"{words} ({len(wrong)} of {len(counters[0])} parameters): several parameters share one step tensor, "
        "as a checkpoint of flat parameters has it, and each of them counts it up",
        "clone every tensor of the optimizer's state before set_optimizer_state_dict",
    )


def loaded_otherwise(evidence: Evidence) -> Cause | None:
    """Both optimizers have a state before their first step, and it is not the same."""
    at_start = [one for one in evidence.comparison.differences if one.step == 0 and one.fails]
    apart = [one for one in at_start if one.quantity.startswith("optimizer state")]
    if not apart or any(one.quantity == "weight" for one in at_start):
        return None
    one = apart[0]
    return Cause(
        "optimizer-loaded-otherwise",
        f"both optimizers have a state before their first step, and {len(apart)} tensors of it differ, the "
        f"{one.quantity.removeprefix('optimizer state ')} of {one.name} first, though the weights are equal: "
        "another state was loaded, or it came to other parameters",
        "load the state of the same checkpoint by the parameters' names: set_optimizer_state_dict(model, "
        "optimizer, state, options=...), after fully_shard",
    )


def state_lost(evidence: Evidence) -> Cause | None:
    """Counters of the optimizer's state start again in a later step."""
    original, candidate = evidence.original, evidence.candidate
    known: dict[str, float] = {}  # what the candidate counted before
    for step in range(1, min(original.last_step, candidate.last_step) + 1):
        before, after = _counters(original, step), _counters(candidate, step)
        stepped = candidate.tensors(step, "gradient")
        anew = sorted(
            name
            for name in set(known) & set(before) & set(after)
            if after[name] < before[name] and after[name] < known[name] + (name in stepped)
        )
        if anew:
            name = anew[0]
            return Cause(
                "optimizer-state-lost",
                f"the optimizer counts {after[name]:g} steps for {name} after step {step} in the candidate "
                f"and {before[name]:g} in the original ({len(anew)} of {len(before)} parameters): its "
                "state starts anew there",
                "keep the optimizer, or load its state with set_optimizer_state_dict when it is built again",
            )
        known |= after
    return None


def state_kept(evidence: Evidence) -> Cause | None:
    """The original's state starts anew in a step, and the candidate's goes on."""
    original, candidate = evidence.original, evidence.candidate
    known: dict[str, float] = {}  # what the original counted before
    for step in range(1, min(original.last_step, candidate.last_step) + 1):
        before, after = _counters(original, step), _counters(candidate, step)
        common = set(known) & set(before) & set(after)
        kept = sorted(name for name in common if before[name] <= known[name] < after[name])
        if kept and len({before[name] for name in kept}) == 1:
            name = kept[0]
            return Cause(
                "optimizer-state-kept",
                f"the optimizer counts {before[name]:g} steps for {name} after step {step} in the original "
                f"and {after[name]:g} in the candidate ({len(kept)} of {len(after)} parameters): the "
                "original's state starts anew there and the candidate's is kept",
                "clear or rebuild the optimizer's state where the original does",
            )
        known |= before
    return None


def state_dtypes(evidence: Evidence) -> Cause | None:
    """The optimizer keeps its state in another dtype."""
    original, candidate = evidence.original, evidence.candidate
    for step, quantity in sorted(key for key in original.parts if key[1].startswith("optimizer state")):
        left, right = original.tensors(step, quantity), candidate.tensors(step, quantity)
        pairs = [(name, left[name][0].dtype, right[name][0].dtype) for name in left if name in right]
        changed = [one for one in pairs if one[1] != one[2]]
        if changed:
            name, before, after = changed[0]
            return Cause(
                "optimizer-state-dtype",
                f"{quantity} is {after} in the candidate and {before} in the original ({name}, "
                f"{len(changed)} of {len(pairs)} parameters)",
                f"make the state in the dtype of the parameters, or in {before} as the original does",
            )
    return None


def _counters(arm: ArmRecord, step: int) -> dict[str, float]:
    parts = arm.tensors(step, "optimizer state step")
    return {name: float(each[0].values()[0]) for name, each in parts.items() if each[0].stored is not None}


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
                f"give the optimizer{' and its scheduler' if key == 'lr' else ''} the {key} of the original"
                + (_NOT_RESUMED if key == "lr" and left.step == 1 and evidence.original.resumes else ""),
            )
        return Cause(
            "optimizer-settings",
            f"{name} has {key}={after} in the candidate's optimizer and {before} in the original's (step "
            f"{left.step})",
            "parameters are full-shape DTensors now, and no name has the prefix of a wrapper: groups chosen "
            "by p.ndim, p.numel() or such a prefix change; choose them on the model before it is sharded, "
            "or by the model's own names",
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
