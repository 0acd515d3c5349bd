"""Rules for how the weights start: loaded, broadcast, initialised; pure."""

from __future__ import annotations

import re

import numpy as np

from fsdp_migrate.verify.evidence import Evidence
from fsdp_migrate.verify.model import Cause, Difference
from fsdp_migrate.verify.record import ArmRecord, widen
from fsdp_migrate.verify.sharding_causes import listed
from fsdp_migrate.verify.whole import assemble

_HUGE = 1e4
_HALF = ("bfloat16", "float16")
_STATISTICS = re.compile(r"running_(mean|var)|num_batches_tracked")
_OF_LATER_MODEL = re.compile(r"model\d+\.")


def initial_weights(evidence: Evidence) -> Cause | None:
    """The first reason that explains why the weights start differently."""
    changed = [one for one in evidence.comparison.differences if one.step == 0 and one.quantity == "weight"]
    if not changed:
        return None
    later = all(_OF_LATER_MODEL.match(one.name) for one in changed)  # seen first after some steps
    rules = (_not_loaded, _uninitialised, _no_broadcast) + (() if later else (_class_swapped,))
    for rule in rules:
        if (cause := rule(evidence, changed)) is not None:
            return cause
    if all(_loads(arm, "model", changed) for arm in (evidence.original, evidence.candidate)):
        return Cause(
            "loaded-otherwise",
            f"both arms load a state into their model before it is first used, and {len(changed)} weights "
            "differ: another checkpoint is loaded, another part of it, or other weights are written over it",
            "load the same in both: the latest file or folder of an arm's own may not be the one that was "
            "given",
        )
    return Cause(
        "initial-weights",
        f"{len(changed)} initial weights differ, on rank 0 too: the arms draw or load other values",
        "initialise before fully_shard in the order the original does, or start both from the same "
        "checkpoint",
    )


def _loads(arm: ArmRecord, what: str, changed: list[Difference]) -> list[int]:
    """Keys without a match in what is loaded before the model is first seen."""
    later = all(_OF_LATER_MODEL.match(one.name) for one in changed)
    return [one.unmatched for one in arm.loads if one.what == what and (later or one.step == 0)]


def _not_loaded(evidence: Evidence, changed: list[Difference]) -> Cause | None:
    before, after = (_loads(arm, "model", changed) for arm in (evidence.original, evidence.candidate))
    if before and not after:
        return Cause(
            "not-loaded",
            f"{len(changed)} initial weights differ: the original loads a state into its model before they "
            "are first used and the candidate loads none",
            "load with set_model_state_dict(model, state, options=StateDictOptions(full_state_dict=True)), "
            "or into the model before fully_shard",
        )
    if after and max(after) > max(before, default=0):
        return Cause(
            "load-unmatched",
            f"{len(changed)} initial weights differ: {max(after)} keys did not match when the "
            "candidate loaded its state (strict=False says nothing of it), and "
            f"{max(before, default=0)} in the original",
            "compare the keys: prefixes of wrappers (_fsdp_wrapped_module, _orig_mod, module) are not equal",
        )
    if after and max(after) < max(before, default=0):
        return Cause(
            "load-unmatched",
            f"{len(changed)} initial weights differ: {max(before)} keys did not match when the original "
            f"loaded its state, and {max(after)} in the candidate, which loads more of it",
            "load what the original loads: it may leave a new head, or weights of other shapes, as they are",
        )
    return None


def _uninitialised(evidence: Evidence, changed: list[Difference]) -> Cause | None:
    wild = []
    for one in changed:
        left = assemble(evidence.original.tensors(0, "weight")[one.name])
        right = assemble(evidence.candidate.tensors(0, "weight")[one.name])
        if left.stored is None or right.stored is None or not left.stored.any():
            continue
        values = widen(right.stored, right.dtype)
        size = np.abs(widen(left.stored, left.dtype)).max()
        if not np.isfinite(values).all() or not values.any() or np.abs(values).max() > _HUGE * size:
            wild.append(one.name)
    if len(wild) < max(1, len(changed) // 2):
        return None
    if _divides_by_zero(evidence.candidate):
        return Cause(
            "zero-eps",
            f"{len(wild)} weights are no numbers ({listed(sorted(wild))}): get_optimizer_state_dict and "
            "set_optimizer_state_dict step an optimizer that has no state yet with gradients of zeros, and "
            "with eps=0 that is 0 / 0",
            "give the optimizer an eps while they are called, or load the model's weights after them",
        )
    return Cause(
        "uninitialised",
        f"{len(wild)} weights start as zeros or as what lay in memory ({listed(sorted(wild))}): they were "
        "made by to_empty() and never initialised",
        "after model.to_empty(device=...) initialise the weights, or load them, and fill buffers that no "
        "state dict holds",
    )


def _divides_by_zero(arm: ArmRecord) -> bool:
    """Whether an optimizer state was asked for or loaded, with nothing added to the divisor."""
    settings = (dict(one) for facts in arm.optimizers for one in facts.settings.values())
    loads = any(one.what == "optimizer" and one.step == 0 for one in arm.loads)
    return loads and any(one.get("eps") == 0 for one in settings)


def _no_broadcast(evidence: Evidence, changed: list[Difference]) -> Cause | None:
    wrong = _ranks_that_differ(evidence, changed)
    if not wrong or 0 in wrong:
        return None
    return Cause(
        "no-broadcast",
        f"{len(changed)} initial weights differ, and only in what rank "
        f"{', '.join(map(str, sorted(wrong)))} holds; "
        "rank 0's part is equal: each rank kept the values it drew itself, so sync_module_states has no "
        "replacement",
        "broadcast parameters and buffers from rank 0 before fully_shard, or load with "
        "broadcast_from_rank0=True",
    )


def _ranks_that_differ(evidence: Evidence, changed: list[Difference]) -> set[int]:
    """Ranks whose part of the candidate's initial weights is not what the original has at that place."""
    found: set[int] = set()
    for one in changed:
        whole = assemble(evidence.original.tensors(0, "weight")[one.name])
        for part in evidence.candidate.tensors(0, "weight")[one.name]:
            if whole.stored is None or part.stored is None or part.start is None:
                return set()
            expected = widen(whole.stored[part.start : part.start + part.numel], whole.dtype)
            if not np.array_equal(expected, part.values()):
                found.add(part.rank)
    return found


def _class_swapped(evidence: Evidence, changed: list[Difference]) -> Cause | None:
    units = [unit.name for unit in evidence.candidate.units if unit.name]
    differing = {one.name for one in changed}

    def inside(name: str) -> bool:
        return any(name.startswith(f"{unit}.") for unit in units)

    outside = [name for name in evidence.candidate.shapes if not inside(name)]
    if not outside or not all(inside(name) for name in differing):
        return None
    return Cause(
        "class-swapped",
        f"{len(changed)} initial weights differ, all of them inside modules that fully_shard was called on, "
        f"and none of the {len(outside)} outside: code that asks type(module) or its class name no longer "
        "recognises these modules, because fully_shard gives them another class",
        "ask isinstance(module, ...), or initialise before fully_shard",
    )


def buffers(evidence: Evidence) -> Cause | None:
    """Buffers differ before the first backward pass."""
    differing = [
        one
        for one in evidence.comparison.differences
        if one.quantity == "buffer" and one.step == 0 and one.fails
    ]
    if not differing or evidence.first is None:
        return None
    changed = [one for one in evidence.comparison.differences if one.step == 0 and one.quantity == "weight"]
    if changed and _not_loaded(evidence, changed):
        return None  # and statistics are part of what is loaded
    made = [one for one in differing if _STATISTICS.search(one.name)]  # by the first forward pass, of others
    differing = [one for one in differing if one not in made] or differing
    name = differing[0].name.partition(" (rank")[0]
    left, right = (arm.tensors(0, "buffer")[name][0] for arm in (evidence.original, evidence.candidate))
    words = f"{len(differing)} buffers differ before the first backward pass ({differing[0].name})"
    if left.dtype != right.dtype and right.dtype in _HALF:
        return Cause(
            "buffers",
            f"{words}: it is {right.dtype} in the candidate and {left.dtype} in the original. fully_shard "
            "leaves buffers as they are: the model was cast as a whole",
            "leave the dtype to MixedPrecisionPolicy, and cast what buffers the original casts",
        )
    if left.dtype != right.dtype:
        return Cause(
            "buffers",
            f"{words}: it is {right.dtype} in the candidate and {left.dtype} in the original. FSDP1 casts "
            "buffers to buffer_dtype, FSDP2 leaves them",
            "cast floating-point buffers after fully_shard; or leave them, which is more precise, and give "
            "the original MixedPrecision(..., buffer_dtype=torch.float32), so that the rest can be compared "
            "(Accelerate and the Trainer cast them under FSDP1, and not under FSDP2)",
        )
    if differing == made:
        return Cause(
            "batch-statistics",
            f"{words}: batch statistics that the first forward pass makes are others. Their momentum, the "
            "batch that they are of (one rank's, or all ranks' with SyncBatchNorm), or the module's mode "
            "differs",
            "build and convert BatchNorm as the original does, before fully_shard",
        )
    return Cause(
        "buffers-not-filled",
        f"{words}, in the same dtype: the candidate never filled them, as happens to buffers that no state "
        "dict holds when a model is built on the meta device",
        "compute such buffers again after to_empty(), or broadcast them from rank 0",
    )
