"""Rules for what is given to `torch.save`; pure."""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_migrate.verify.evidence import Evidence
from fsdp_migrate.verify.model import SAVED, Cause
from fsdp_migrate.verify.record import ArmRecord, Save
from fsdp_migrate.verify.sharding_causes import listed


def save_pairs(original: ArmRecord, candidate: ArmRecord) -> Iterator[tuple[Save, Save]]:
    """Saves of both arms, in order, rank by rank."""
    for rank in range(max(original.ranks, 1)):
        left, right = ([one for one in arm.saves if one.rank == rank] for arm in (original, candidate))
        yield from zip(left, right, strict=False)


def saved_shards(evidence: Evidence) -> Cause | None:
    """A checkpoint of whole tensors has become one of this rank's part of them."""
    for left, right in save_pairs(evidence.original, evidence.candidate):
        new = sorted(set(right.partial) - set(left.partial))
        if new:
            return Cause(
                "saved-shards",
                f"torch.save was given only rank {right.rank}'s part of {len(new)} tensors ({listed(new)}) "
                f"in the candidate, after step {right.step}, and whole tensors in the original: the "
                "file claims their full shapes and lacks the rest",
                "gather first, on every rank: get_model_state_dict(model, options=StateDictOptions("
                "full_state_dict=True, cpu_offload=True)), and get_optimizer_state_dict likewise",
            )
    return None


def saved_names(evidence: Evidence) -> Cause | None:
    """A checkpoint has other keys, or is made at another time."""
    for left, right in save_pairs(evidence.original, evidence.candidate):
        lost, new = sorted(set(left.names) - set(right.names)), sorted(set(right.names) - set(left.names))
        if left.step != right.step:
            return Cause(
                "saved-when",
                f"a checkpoint is saved after step {right.step} in the candidate and after step {left.step} "
                "in the original",
                "save where the original does: before or after optimizer.step() is not the same",
            )
        if lost or new:
            return Cause(
                "saved-names",
                f"the checkpoint saved after step {right.step} has other keys: {len(lost)} are missing "
                f"({listed(lost) or 'none'}) and {len(new)} are new ({listed(new) or 'none'})",
                "save what get_model_state_dict and get_optimizer_state_dict return: their keys are the "
                "parameters' own names",
            )
    return None


def saved_values(evidence: Evidence) -> Cause | None:
    """A checkpoint holds other tensors under the same names, though what was trained is equal."""
    arms = (evidence.original, evidence.candidate)
    first = evidence.first
    reshaped = [
        one for one in evidence.comparison.unmatched if one[1] == SAVED and one[3].startswith("shape")
    ]
    if first is not None and first.quantity == SAVED:
        step, name = first.step, first.name
        dtypes = [arm.tensors(step, SAVED)[name][0].dtype for arm in arms]
        count = sum(one.fails and one.quantity == SAVED for one in evidence.comparison.differences)
        what = f"{count} tensors differ"
        if dtypes[0] != dtypes[1]:
            what = f"{count} tensors differ, and are {dtypes[1]} there and {dtypes[0]} in the original"
    elif reshaped and (first is None or first.step > reshaped[0][0]):
        step, _, name, shapes = reshaped[0]
        what = f"{len(reshaped)} tensors have other shapes ({shapes})"
    else:
        return None
    file, _, tensor = name.partition(", ")
    return Cause(
        "saved-values",
        f"{file} of those saved, after step {step}, holds something else in the candidate though the trained "
        f"weights are equal: {what}, {tensor} first",
        "look at which model or average is saved, when its state dict is taken, and what is done to its "
        "tensors before they are saved",
    )


def other_models(evidence: Evidence) -> Cause | None:
    """A model that is only called without gradients has other weights."""
    first = evidence.first
    is_buffer = first is not None and first.quantity == "buffer" and first.name.startswith("other")
    if first is None or not (is_buffer or first.quantity == "weight of another model"):
        return None
    count = sum(
        one.quantity == first.quantity and one.step == first.step and one.fails
        for one in evidence.comparison.differences
    )
    return Cause(
        "other-model",
        f"{count} {'buffers' if is_buffer else 'weights'} of a model that is only called without gradients "
        f"(an average of the weights, a teacher) differ after step {first.step}, {first.name} first, though "
        "those of the trained model are equal: it is updated otherwise, from something else than the sharded "
        "parameters, or not at all",
        "take model.parameters() anew for each update, after resharding (lists made before fully_shard or "
        "after a forward pass hold other tensors), after optimizer.step() if the original does, and with its "
        "decay; start it from the same weights",
    )
