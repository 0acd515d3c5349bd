"""What changes memory and communication and no number: units, shards, replicas, checkpointing; pure."""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_migrate.verify import world_sizes
from fsdp_migrate.verify.record import ArmRecord, Unit, same_units
from fsdp_migrate.verify.sharding_causes import listed


def layout_warnings(original: ArmRecord, candidate: ArmRecord) -> Iterator[str]:
    """Each way in which the candidate shards less well, or otherwise, than the original did."""
    if original.kind != "FSDP1" or candidate.kind != "FSDP2":
        return
    yield from _lost_units(original, candidate)
    pairs = same_units(original, candidate)
    yield from _strategies(pairs, same_ranks=not world_sizes.differ(original, candidate))
    if original.checkpointed > candidate.checkpointed:
        yield (
            f"activation checkpointing covers {candidate.checkpointed} modules in the candidate and "
            f"{original.checkpointed} in the original: more activations are kept; a check of type(module) or "
            "of a class name does not recognise modules that fully_shard was called on"
        )
    elif candidate.checkpointing and (
        lost := sorted(set(original.checkpointing) - set(candidate.checkpointing))
    ):
        yield (
            f"activation checkpointing covers other modules: {listed(lost)} in the original "
            f"({len(lost)} of {original.checkpointed}) and {listed(sorted(candidate.checkpointing))} in the "
            "candidate, so that other activations are kept"
        )


def _lost_units(original: ArmRecord, candidate: ArmRecord) -> Iterator[str]:
    before, after = {unit.name for unit in original.units}, {unit.name for unit in candidate.units}
    lost = sorted(name for name in before - after if name)
    if lost:
        yield (
            f"{len(lost)} of {len(before)} FSDP units are gone ({listed(lost)}): their parameters are "
            "gathered together with those of the unit above, so that memory grows and "
            "communication no longer "
            "overlaps; numbers do not change"
        )


def _strategies(pairs: list[tuple[Unit, Unit]], *, same_ranks: bool) -> Iterator[str]:
    pairs = [(left, right) for left, right in pairs if left.shards and right.shards]
    for left, right in pairs:
        if same_ranks and (left.shards, left.replicas) != (right.shards, right.replicas):
            yield (
                f"unit {right.name or '(root)'} is kept in {_layout(right)} in the candidate and "
                f"in {_layout(left)} in the original ({left.strategy}): HYBRID_SHARD and "
                "NO_SHARD need a mesh of "
                "two dimensions, (replicas, shards)"
            )
            return
    for left, right in pairs:
        if left.reshards != right.reshards and right.shards > 1:
            what = "frees its parameters after forward" if right.reshards else "keeps its parameters gathered"
            yield (
                f"unit {right.name or '(root)'} {what} in the candidate and not so in the original "
                f"({left.strategy}): set reshard_after_forward={left.reshards}, or leave it out for the root"
            )
            return


def _layout(unit: Unit) -> str:
    shards, replicas = unit.shards, unit.replicas
    return f"{shards} shard{'s' * (shards != 1)} and {replicas} replica{'s' * (replicas != 1)}"
