"""From two records and their comparison to checks, notices and pass or fail; pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from fsdp_migrate.verify.compare import Comparison
from fsdp_migrate.verify.gradient_causes import norms_reported, reduced_passes
from fsdp_migrate.verify.model import CLIPPED, SAVED, Check, Difference, Outcome
from fsdp_migrate.verify.notices import notices_of, warnings_beside_equal_numbers, warnings_of
from fsdp_migrate.verify.record import ArmRecord, moved
from fsdp_migrate.verify.saving_causes import save_pairs

_STATE = "optimizer state"
_STRUCTURE = "Parameters: names and shapes"
_TITLES = {
    "loss": "Loss",
    "gradient": "Gradients before clipping",
    "gradient norm": "Gradient norm",
    CLIPPED: "Gradients after clipping",
    "weight": "Weights after each step",
    _STATE: "Optimizer state",
    "buffer": "Buffers",
}
_WHERE_ANY = {
    "weight of another model": "Weights of other models",
    SAVED: "Tensors given to torch.save",
}
"""Checks of what most jobs do not have; left out where neither arm has it."""


@dataclass(frozen=True, slots=True)
class Judged:
    """Everything `judge` found."""

    checks: tuple[Check, ...]
    notices: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Parity holds: nothing differs by more than rounding, and enough was seen to say so."""
        return not any(check.outcome is Outcome.DIFFERS for check in self.checks)


def _sharding(original: ArmRecord, candidate: ArmRecord) -> Check:
    """Equal numbers of two jobs that shard nothing say nothing of FSDP."""
    title = "Sharding"
    if "FSDP1" not in original.kind and "FSDP" not in candidate.kind:
        detail = f"neither arm is sharded ({original.kind}): nothing of FSDP was compared"
        return Check(title, Outcome.DIFFERS, detail)
    if candidate.kind == "not sharded":
        return Check(title, Outcome.DIFFERS, f"{original.kind} -> {candidate.kind}")
    return Check(title, Outcome.EQUAL, f"{original.kind} -> {candidate.kind}")


def _enough(checks: list[Check]) -> Check:
    """A verdict on what nobody saw would be worth nothing."""
    title, needed = "Enough was observed to judge", (_STRUCTURE, "Initial weights", _TITLES["weight"])
    unseen = [one.title for one in checks if one.title in needed and one.outcome is Outcome.NOT_OBSERVED]
    if unseen:
        return Check(title, Outcome.DIFFERS, f"not observed: {', '.join(unseen)}")
    return Check(title, Outcome.EQUAL)


def judge(original: ArmRecord, candidate: ArmRecord, comparison: Comparison, origin: str) -> Judged:
    """Turn a comparison with limits into checks.

    Args:
        origin: where the limits come from, for the report.
    """
    checks = [
        _structure(original, candidate),
        _data(original, candidate),
        _numbers(
            comparison,
            "Initial weights",
            origin,
            lambda one: (one.step, one.quantity) == (0, "weight"),
            original,
        ),
        *(_by_quantity(comparison, quantity, origin, original, candidate) for quantity in _TITLES),
        *(
            _by_quantity(comparison, quantity, origin, original, candidate)
            for quantity in _WHERE_ANY
            if _is_there(quantity, original, candidate)
        ),
        *([_saves(original, candidate)] if original.saves and candidate.saves else []),
        _dtypes(original, candidate),
        _moved(original, candidate),
        _optimizers(original, candidate),
        _replicas(comparison),
        _reductions(original, candidate),
        _steps(original, candidate),
    ]
    checks += [_sharding(original, candidate), _enough(checks)]
    notices = tuple(notices_of(original, candidate, comparison))
    warnings = tuple(warnings_of(original, candidate))
    judged = Judged(tuple(checks), notices, warnings)
    if judged.passed:
        beside = warnings_beside_equal_numbers(original, candidate)
        judged = Judged(judged.checks, notices, (*warnings, *beside))
    return judged


def _is_there(quantity: str, original: ArmRecord, candidate: ArmRecord) -> bool:
    """In either arm; files in both, because a checkpoint may be written by other means."""
    found = [any(kind == quantity for _, kind in arm.parts) for arm in (original, candidate)]
    return all(found) if quantity == SAVED else any(found)


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


def _structure(original: ArmRecord, candidate: ArmRecord) -> Check:
    left, right = original.shapes, candidate.shapes
    title = _STRUCTURE
    if not left:
        return Check(title, Outcome.NOT_OBSERVED, "no model with trainable parameters was called")
    wrong = sorted(name for name in set(left) | set(right) if left.get(name) != right.get(name))
    frozen = sorted(
        name for name in set(left) & set(right) if original.trainable[name] != candidate.trainable[name]
    )
    if wrong or frozen:
        what = (
            f"{len(wrong)} differ ({', '.join(wrong[:3])})"
            if wrong
            else f"requires_grad of {', '.join(frozen[:3])}"
        )
        return Check(title, Outcome.DIFFERS, what, len(left))
    return Check(title, Outcome.EQUAL, compared=len(left))


def _data(original: ArmRecord, candidate: ArmRecord) -> Check:
    title, seen = "Model inputs", 0
    for step in sorted(set(original.steps) & set(candidate.steps)):
        for rank, (left, right) in enumerate(zip(original.steps[step], candidate.steps[step], strict=False)):
            seen += len(left.inputs)
            if left.inputs != right.inputs:
                return Check(title, Outcome.DIFFERS, f"first in step {step} on rank {rank}", seen)
    return Check(title, Outcome.EQUAL if seen else Outcome.NOT_OBSERVED, compared=seen)


def _by_quantity(
    comparison: Comparison, quantity: str, origin: str, original: ArmRecord, candidate: ArmRecord
) -> Check:
    def wanted(one: Difference) -> bool:
        return _kind(one.quantity) == quantity and not (one.step == 0 and quantity == "weight")

    if quantity == "gradient norm":
        calls = [norms_reported(arm) for arm in (original, candidate)]
        if calls[0] != calls[1]:
            detail = (
                f"norms were reported {calls[0]} times in the original and {calls[1]} times in the candidate"
            )
            return Check(_TITLES[quantity], Outcome.NOT_OBSERVED, detail)
    title = _TITLES.get(quantity) or _WHERE_ANY[quantity]
    return _numbers(comparison, title, origin, wanted, original, quantity)


def _kind(quantity: str) -> str:
    return _STATE if quantity.startswith(_STATE) else quantity


def _numbers(
    comparison: Comparison,
    title: str,
    origin: str,
    wanted: Callable[[Difference], bool],
    original: ArmRecord,
    quantity: str = "weight",
) -> Check:
    found = [one for one in comparison.differences if wanted(one)]
    compared = sum(count for kind, count in comparison.compared.items() if _kind(kind) == quantity)
    if title == "Initial weights":
        compared = len(original.tensors(0, "weight"))
    elif quantity == "weight":
        compared -= len(original.tensors(0, "weight"))
    lonely = [one for one in comparison.unmatched if _kind(one[1]) == quantity and title != "Initial weights"]
    if lonely:
        step, kind, name, lacking = lonely[0]
        detail = f"{len(lonely)} without counterpart: {kind} of {name}, step {step} (missing in: {lacking})"
        return Check(title, Outcome.DIFFERS, detail, compared)
    if not compared:
        return Check(title, Outcome.NOT_OBSERVED)
    if not found:
        return Check(title, Outcome.EQUAL, compared=compared, numbers=True)
    worst = max(found, key=lambda one: one.relative)
    failing = [one for one in found if one.fails]
    if failing:
        one = failing[0]
        detail = f"{len(failing)} of {compared} differ, first {one.name} in step {one.step}"
        return Check(title, Outcome.DIFFERS, detail, compared, worst.relative, one.limit, origin)
    return Check(
        title,
        Outcome.WITHIN,
        f"{len(found)} of {compared} differ",
        compared,
        worst.relative,
        worst.limit,
        origin,
    )


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
    if before != after:
        return Check(title, Outcome.DIFFERS, f"backward passes that reduce: {before:g} -> {after:g}")
    return Check(title, Outcome.EQUAL, f"in {after:g} backward pass{'es' * (after != 1)}")


def _steps(original: ArmRecord, candidate: ArmRecord) -> Check:
    before, after = original.last_step, candidate.last_step
    if before != after:
        return Check("Steps", Outcome.DIFFERS, f"the original made {before}, the candidate {after}")
    return Check("Steps", Outcome.EQUAL, compared=after)
