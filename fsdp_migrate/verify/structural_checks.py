"""Checks that hold or do not whatever the numbers are: dtypes, settings, sharding, what is saved; pure.

Where numbers may differ by rounding, a mistake can hide in what rounding is allowed; it cannot hide here.
"""

from __future__ import annotations

from collections.abc import Iterable

from fsdp_migrate.verify import world_sizes
from fsdp_migrate.verify.backward_causes import reduces_another_pass
from fsdp_migrate.verify.clipping_causes import clip_differences, equal_norms
from fsdp_migrate.verify.compare import Comparison
from fsdp_migrate.verify.gradient_causes import reduced_passes
from fsdp_migrate.verify.model import Check, Outcome
from fsdp_migrate.verify.precision_causes import policy_differences
from fsdp_migrate.verify.record import ArmRecord
from fsdp_migrate.verify.saving_causes import save_pairs
from fsdp_migrate.verify.sharding_causes import units_of_fsdp1
from fsdp_migrate.verify.shared_files import apart_check
from fsdp_migrate.verify.whole import moved


def structural_checks(
    original: ArmRecord, candidate: ArmRecord, comparison: Comparison, *, same_api: bool
) -> list[Check]:
    """All of them, in the order of the report.

    Args:
        same_api: whether both arms may be FSDP1.
    """
    return [
        *apart_check(original, candidate),
        *([_saves(original, candidate)] if original.saves and candidate.saves else []),
        _dtypes(original, candidate),
        _policies(original, candidate),
        *([_clip_arguments(original, candidate)] if original.clips and candidate.clips else []),
        *([_norms_of_ranks(original, candidate)] if original.clips and candidate.clips else []),
        _moved(original, candidate),
        _optimizers(original, candidate),
        _replicas(comparison),
        _reductions(original, candidate),
        _steps(original, candidate),
        _sharding(original, candidate, same_api=same_api),
    ]


def _policies(original: ArmRecord, candidate: ArmRecord) -> Check:
    title = "Precision of units"
    if not original.units or not candidate.units:
        return Check(title, Outcome.NOT_OBSERVED, "an arm has no FSDP units")
    for unit, what, before, after in policy_differences(original, candidate):
        words = f"{what} of unit {unit or '(root)'}: {before or 'not set'} -> {after or 'not set'}"
        return Check(title, Outcome.DIFFERS, words)
    return Check(title, Outcome.EQUAL, compared=len(candidate.units))


def _clip_arguments(original: ArmRecord, candidate: ArmRecord) -> Check:
    title = "Clipping: limit and kind of norm"
    for step, what, before, after in clip_differences(original, candidate):
        return Check(title, Outcome.DIFFERS, f"{what} {before:g} -> {after:g} in step {step}")
    return Check(title, Outcome.EQUAL)


def _norms_of_ranks(original: ArmRecord, candidate: ArmRecord) -> Check:
    """A norm is the whole model's and the same on every rank; a rank's part of it can pass for rounding."""
    title = "Norm the same on every rank"
    for step in range(1, min(original.last_step, candidate.last_step) + 1):
        if not equal_norms(candidate, step) and equal_norms(original, step):
            return Check(title, Outcome.DIFFERS, f"it differs by rank in step {step} of the candidate")
    return Check(title, Outcome.EQUAL)


def _sharding(original: ArmRecord, candidate: ArmRecord, *, same_api: bool) -> Check:
    """Equal numbers of two jobs that shard nothing say nothing of FSDP."""
    title = "Sharding"
    if "FSDP1" not in original.kind and "FSDP" not in candidate.kind:
        detail = f"neither arm is sharded ({original.kind}): nothing of FSDP was compared"
        return Check(title, Outcome.DIFFERS, detail)
    replicates = candidate.kind == "DDP" and original.shares_weights
    if replicates or candidate.kind == "not sharded" or (candidate.kind == "FSDP1" and not same_api):
        return Check(title, Outcome.DIFFERS, f"{original.kind} -> {candidate.kind}")
    if (left := units_of_fsdp1(candidate)) and not same_api:
        return Check(title, Outcome.DIFFERS, f"{len(left)} of {len(candidate.units)} units are FSDP1 still")
    return Check(title, Outcome.EQUAL, f"{original.kind} -> {candidate.kind}")


def _saves(original: ArmRecord, candidate: ArmRecord) -> Check:
    """Whether a file of whole tensors has become one of shards, or has other keys."""
    title, pairs = "Checkpoints: keys, and whole tensors", list(save_pairs(original, candidate))
    for left, right in pairs:
        if set(right.partial) - set(left.partial):
            detail = f"{len(set(right.partial) - set(left.partial))} tensors are only this rank's part"
            return Check(
                title, Outcome.DIFFERS, f"{detail} (rank {right.rank}, step {right.step})", len(pairs)
            )
        if set(left.names) != set(right.names):
            changed = len(set(left.names) ^ set(right.names))
            return Check(title, Outcome.DIFFERS, f"{changed} keys differ (step {right.step})", len(pairs))
    return Check(title, Outcome.EQUAL if pairs else Outcome.NOT_OBSERVED, compared=len(pairs))


def _dtypes(original: ArmRecord, candidate: ArmRecord) -> Check:
    title, seen, step = (
        "Dtypes of weights and state",
        0,
        min(1, original.last_step, candidate.last_step),
    )
    for quantity in ("weight", *original.state_quantities(step)):
        left, right = original.tensors(step, quantity), candidate.tensors(step, quantity)
        for name in sorted(set(left) & set(right)):
            seen += 1
            before, after = left[name][0].dtype, right[name][0].dtype
            if before != after:
                return Check(title, Outcome.DIFFERS, f"{quantity} of {name}: {before} -> {after}", seen)
    return Check(title, Outcome.EQUAL if seen else Outcome.NOT_OBSERVED, compared=seen)


def _moved(original: ArmRecord, candidate: ArmRecord) -> Check:
    title, left, right = "Trainable move, frozen stay", moved(original), moved(candidate)
    still = sorted(
        name for name in left if left[name] and not right.get(name, True) and candidate.trainable.get(name)
    )
    if still:
        detail = (
            f"{len(still)} of {len(left)} never move in the candidate and do in the original "
            f"({', '.join(still[:3])})"
        )
        return Check(title, Outcome.DIFFERS, detail, len(left))
    slid = sorted(name for name in right if right[name] and not left.get(name, True))
    if slid:
        detail = f"{len(slid)} move in the candidate and stay in the original ({', '.join(slid[:3])})"
        return Check(title, Outcome.DIFFERS, detail, len(left))
    return Check(title, Outcome.EQUAL if left else Outcome.NOT_OBSERVED, compared=len(left))


def _optimizers(original: ArmRecord, candidate: ArmRecord) -> Check:
    title = "Optimizer: parameters and settings"
    pairs = list(zip(original.optimizers, candidate.optimizers, strict=False))
    for left, right in pairs:
        if right.foreign > left.foreign:
            return Check(
                title, Outcome.DIFFERS, f"{right.foreign} parameters are not in the model", len(pairs)
            )
        for name in sorted(set(left.settings) | set(right.settings)):
            if name not in right.settings or name not in left.settings:
                where = "candidate" if name in left.settings else "original"
                return Check(title, Outcome.DIFFERS, f"{name} is not in the {where}'s optimizer", len(pairs))
            if left.settings[name] != right.settings[name]:
                return Check(
                    title, Outcome.DIFFERS, f"{name}: {_changed(left.settings[name], right.settings[name])}"
                )
    return Check(title, Outcome.EQUAL if pairs else Outcome.NOT_OBSERVED, compared=len(pairs))


def _changed(left: Iterable[tuple[str, object]], right: Iterable[tuple[str, object]]) -> str:
    before, after = dict(left), dict(right)
    return ", ".join(
        f"{key} {before.get(key)} -> {after.get(key)}"
        for key in sorted(set(before) | set(after), key=lambda key: (key == "initial_lr", key))
        if before.get(key) != after.get(key)
    )


def _replicas(comparison: Comparison) -> Check:
    title = "Replicas equal on all ranks"
    if comparison.replicas_apart:
        arm, step, quantity, name, ranks = comparison.replicas_apart[0]
        where = f"{quantity} of {name} in the {arm} alone, step {step}, rank {', '.join(map(str, ranks))}"
        return Check(title, Outcome.DIFFERS, where)
    names = {name for _, _, _, name, _ in comparison.replicas_differ}
    return Check(title, Outcome.EQUAL, f"{len(names)} differ by rank in both arms" if names else "")


def _reductions(original: ArmRecord, candidate: ArmRecord) -> Check:
    title, before, after = "Gradient reductions per step", reduced_passes(original), reduced_passes(candidate)
    if not before and not after:
        return Check(title, Outcome.NOT_OBSERVED, "no collective reduced a gradient")
    if "DDP" in (original.kind, candidate.kind):
        return Check(title, Outcome.NOT_OBSERVED, "DistributedDataParallel reduces gradients out of sight")
    if world_sizes.differ(original, candidate) and not world_sizes.reduce_alike(original, candidate):
        return Check(title, Outcome.NOT_OBSERVED, "the arms make, or have to reduce, other numbers of passes")
    if reduces_another_pass(original, candidate):
        return Check(title, Outcome.DIFFERS, "other backward passes of a step reduce them")
    if before != after:
        return Check(title, Outcome.DIFFERS, f"backward passes that reduce: {before:g} -> {after:g}")
    return Check(title, Outcome.EQUAL, f"in {after:g} backward pass{'es' * (after != 1)}")


def _steps(original: ArmRecord, candidate: ArmRecord) -> Check:
    before, after = original.last_step, candidate.last_step
    if before != after:
        return Check("Steps", Outcome.DIFFERS, f"the original made {before}, the candidate {after}")
    return Check("Steps", Outcome.EQUAL, compared=after)
