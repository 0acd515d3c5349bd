"""Rules for dtypes: of weights, of units' policies, of what goes into units; pure."""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_migrate.verify.evidence import Evidence
from fsdp_migrate.verify.model import Cause
from fsdp_migrate.verify.record import ArmRecord, Unit, same_units


def initial_dtypes(evidence: Evidence) -> Cause | None:
    """The weights start in another dtype."""
    left, right = evidence.original.tensors(0, "weight"), evidence.candidate.tensors(0, "weight")
    pairs = [(name, left[name][0].dtype, right[name][0].dtype) for name in left if name in right]
    changed = [one for one in pairs if one[1] != one[2]]
    if not changed:
        return None
    name, before, after = changed[0]
    return Cause(
        "initial-dtype",
        f"{len(changed)} of {len(pairs)} weights start as another dtype: {name} is {after} in the candidate "
        f"and {before} in the original",
        f"build or load the model in {before} as the original does; what units compute in is set by "
        "MixedPrecisionPolicy",
    )


def policies(evidence: Evidence) -> Cause | None:
    """Units compute or reduce in another dtype."""
    for unit, what, before, after in policy_differences(evidence.original, evidence.candidate):
        had = next(one for one in evidence.original.units if one.name == unit)
        return Cause(
            "precision",
            f"unit {unit or '(root)'}: {what} is {after or 'not set'} in the candidate and "
            f"{before or 'not set'} in the original",
            f"give the unit the policy that it had under FSDP1: {_policy(had)}",
        )
    return None


def policy_differences(original: ArmRecord, candidate: ArmRecord) -> Iterator[tuple[str, str, str, str]]:
    """Unit, field, and its values in both arms, where a unit computes or reduces in another dtype."""
    own = next((parts[0].dtype for parts in original.tensors(0, "weight").values()), "")
    for left, right in [*same_units(original, candidate), *_lost_units(original, candidate)]:
        for what in ("param_dtype", "reduce_dtype"):
            before, after = getattr(left, what), getattr(right, what)
            if (before or own) != (after or own):
                yield left.name, what, before, after


def _lost_units(original: ArmRecord, candidate: ArmRecord) -> list[tuple[Unit, Unit]]:
    """Units of the original that are none in the candidate, with the candidate's unit that holds them now."""
    after = {unit.name: unit for unit in candidate.units}
    found = []
    for unit in original.units:
        if unit.name in after:
            continue
        above = unit.name
        while above and above not in after:
            above = above.rpartition(".")[0]
        if above in after:
            found.append((unit, after[above]))
    return found


def _policy(unit: Unit) -> str:
    """What `fully_shard` wants for what the original unit had."""
    names = ("param_dtype", "reduce_dtype")
    given = [f"{name}=torch.{getattr(unit, name)}" for name in names if getattr(unit, name)]
    if not given:
        return "fully_shard without mp_policy"
    return f"mp_policy=MixedPrecisionPolicy({', '.join(given)}, ...), on every fully_shard call that had it"


def input_casts(evidence: Evidence) -> Cause | None:
    first = evidence.first
    if first is None or first.quantity not in ("loss", "gradient"):
        return None
    if any(
        left.param_dtype != right.param_dtype
        for left, right in same_units(evidence.original, evidence.candidate)
    ):
        return None  # inputs are cast to it: `policies` names the cause
    for name, before in evidence.original.input_dtypes.items():
        after = evidence.candidate.input_dtypes.get(name, before)
        if before != after:
            where = f"of {name}" if name else "of the root"
            return Cause(
                "input-cast",
                f"block inputs {where} were {_dtypes(after)} in the candidate and {_dtypes(before)} in "
                "the original: "
                "cast_forward_inputs",
                "FSDP1 casts inputs at the root alone: give every unit but the root "
                "MixedPrecisionPolicy(..., cast_forward_inputs=False)",
            )
    return None


def autocast_cache(evidence: Evidence) -> Cause | None:
    first, dtype = evidence.first, evidence.candidate.autocast
    if first is None or not dtype or first.quantity != "loss" or first.step < 2:
        return None
    return Cause(
        "autocast-cache",
        f"the loss of step {first.step} differs though the weights before it are equal, under autocast to "
        f"{dtype}: an autocast context that spans several steps keeps the weights it cast in the first, "
        "because FSDP2 gathers into the same parameter again",
        "enter torch.autocast inside the step, or give it cache_enabled=False",
    )


def _dtypes(names: tuple[str, ...]) -> str:
    return " and ".join(names) or "no floating-point tensors"
