"""What a verdict's reader should know beside the checks; pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from fsdp_migrate.verify import world_sizes
from fsdp_migrate.verify.advisories import advisories
from fsdp_migrate.verify.answer_calls import missing_call
from fsdp_migrate.verify.clipping_causes import never_over_limit, norms_reported
from fsdp_migrate.verify.compare import Comparison
from fsdp_migrate.verify.layout_warnings import layout_warnings
from fsdp_migrate.verify.model import ANSWER
from fsdp_migrate.verify.printed import (
    Printed,
    counts_whole_parameters,
    differences,
    prints_dtensors,
)
from fsdp_migrate.verify.record import ArmRecord, same_units
from fsdp_migrate.verify.sharding_causes import listed
from fsdp_migrate.verify.shared_files import written_elsewhere
from fsdp_migrate.verify.spec import ENOUGH
from fsdp_migrate.verify.whole import moved
from fsdp_migrate.verify.written import counterparts, gone

_OF_ALL = ("loss", "gradient norm", ANSWER)
_AMPLIFIED = 20.0
"""How many times the rounding of what it is computed from a printed number may be off: exp(loss), say."""


def warnings_of(original: ArmRecord, candidate: ArmRecord) -> Iterable[str]:
    """What equal numbers cannot tell and a reader who sees PASS must know."""
    yield from written_elsewhere(original, candidate)
    before, after = norms_reported(original), norms_reported(candidate)
    if before and after and before != after:
        yield (
            f"the original reported a gradient norm {before} times and the candidate {after} times: it clips "
            "more or less often, or parts of the gradients by themselves. Where no norm exceeds its limit "
            "that changes nothing yet"
        )
    if before and not after and never_over_limit(original):
        yield (
            f"the original reported a gradient norm {before} times and the candidate never: clipping may be "
            "missing, or is done by a function of the project's own. No norm exceeded the limit in these "
            "steps, so the gradients after clipping agree either way; look, or verify with more --steps"
        )


def warnings_beside_equal_numbers(
    original: ArmRecord, candidate: ArmRecord, comparison: Comparison
) -> Iterable[str]:
    """What a job that passes still does otherwise: what it logs, saves, and how it shards."""
    if original.kind == "FSDP2":
        yield "the original is sharded by FSDP2 already: it is no measure of what FSDP1 did"
    if since := not_a_number(original):
        yield (
            f"the loss is not a number from step {since} on, in both arms: what is compared after it says "
            "nothing"
        )
    yield from layout_warnings(original, candidate)
    if missing := missing_call(original, candidate):
        yield missing.words
    wrong = [
        one
        for one in _printed(original, candidate, comparison)
        if not counts_whole_parameters(one, _numel(candidate))
    ]
    if wrong:
        one = wrong[0]
        yield (
            f"the job prints or writes other numbers: {one.label or 'a number'} {one.candidate:g} in the "
            f"candidate and {one.original:g} in the original ({one.line.strip()!r}, {len(wrong)} in all). "
            "What it computes is equal; .item() of a DTensor is one rank's part (take .full_tensor() "
            "first), and numel() counts "
            "whole tensors"
        )
    if line := prints_dtensors(original.printed, candidate.printed):
        yield f"the job prints a DTensor where the original printed a number: {line.strip()[:120]!r}"
    if lost := gone(original.written, candidate.written):
        yield f"the original writes {lost[0]} and the candidate does not ({len(lost)} such files in all)"
    before, after = len(original.saves), len(candidate.saves)
    if before and after < before:
        yield (
            f"the original saved tensors {before} times and the candidate {after} times: a "
            "checkpoint is no longer written, or is written by other means than torch.save and "
            "torch.distributed.checkpoint"
        )


def not_a_number(arm: ArmRecord) -> int:
    """From which step on every one has a loss that is NaN or infinite; 0 if the last has none.

    One step alone may: a job that leaves out a batch whose loss is no number goes on.
    """
    since = 0
    for step, facts in sorted(arm.steps.items()):
        finite = all(math.isfinite(loss) for one in facts for loss in one.own_losses)
        since = 0 if finite else since or step
    return since


def _printed(original: ArmRecord, candidate: ArmRecord, comparison: Comparison) -> list[Printed]:
    """Printed numbers that differ by more than rounding may make the numbers themselves differ."""
    if world_sizes.differ(original, candidate):  # what rank 0 prints is of its own part of the batch
        return []
    limits = [_AMPLIFIED * one.limit for one in comparison.differences if one.limit < 1]
    seen = [_AMPLIFIED * one.relative for one in comparison.differences if one.quantity in _OF_ALL]
    tolerance = max(limits, default=0.0)
    was_compared = any(comparison.compared.get(quantity) for quantity in _OF_ALL)
    of_all = min(tolerance, max(seen, default=0.0 if was_compared else tolerance))
    found = differences(original.printed, candidate.printed, tolerance, of_all)
    for left, right in counterparts(original.written, candidate.written):
        apart = differences(original.written[left], candidate.written[right], tolerance, of_all)
        found += [replace(one, line=f"{right}: {one.line}") for one in apart]
    return found


def _numel(arm: ArmRecord) -> int:
    return sum(math.prod(shape) for shape in arm.shapes.values())


def notices_of(original: ArmRecord, candidate: ArmRecord, comparison: Comparison) -> Iterable[str]:
    """What else is not the same, or could not be told, and does not decide."""
    if world_sizes.differ(original, candidate):
        yield world_sizes.notice(original, candidate)
    before, after = {unit.name for unit in original.units}, {unit.name for unit in candidate.units}
    if before != after:
        yield (
            f"units changed: {len(before)} -> {len(after)}; memory and overlap change with them, numbers "
            "do not "
            f"(gone: {listed(sorted(before - after)) or 'none'}; "
            f"new: {listed(sorted(after - before)) or 'none'})"
        )
    counted = [
        one
        for one in _printed(original, candidate, comparison)
        if counts_whole_parameters(one, _numel(candidate))
    ]
    if counted:
        yield (
            f"the job counts {counted[0].candidate:g} parameters where it counted "
            f"{counted[0].original:g}: FSDP1 "
            "shows each rank its part of them, FSDP2 all"
        )
    for left, right in same_units(original, candidate):
        if left.casts_inputs != right.casts_inputs and left.name:
            yield f"unit {left.name}: casts its inputs: {left.casts_inputs} -> {right.casts_inputs}"
            break
    if original.autocast != candidate.autocast:
        yield (
            f"autocast is {original.autocast or 'off'} in the original and {candidate.autocast or 'off'} in "
            "the candidate when the model is called; which operations it casts depends on the device"
        )
    if comparison.unused:
        yield (
            f"{len(comparison.unused)} unused parameters get a zero gradient in one arm and none in the "
            "other "
            f"({listed(sorted(comparison.unused))})"
        )
    still = sorted(
        name for name, moves in moved(candidate).items() if not moves and candidate.trainable.get(name)
    )
    if still and not any(moved(original).get(name) for name in still):
        yield f"{len(still)} trainable parameters move in neither arm ({listed(still)})"
    if comparison.incomplete:
        yield (
            f"{len(comparison.incomplete)} tensors were compared in part only "
            f"({listed(sorted(comparison.incomplete))})"
        )


def notes_of_run(
    original: ArmRecord, candidate: ArmRecord, comparison: Comparison, *, passed: bool
) -> Iterable[str]:
    """What the reader should know of how the arms ran and compare."""
    if passed and not comparison.bitwise:
        yield "the arms differ by rounding; see where the allowed differences come from"
    if stopped := [arm for arm in (original, candidate) if ENOUGH in arm.ended.values()]:
        yield (
            f"stopped after step {stopped[0].last_step}: what the script does after its training was not "
            "run. Arguments that make it end within --steps show that too"
        )
        in_turn = sum(not facts[0].losses for facts in stopped[0].steps.values() if facts)
        if in_turn:
            yield (
                f"{in_turn} of the {stopped[0].last_step} steps follow another one without a backward pass: "
                "the job has several optimizers, each of which counts, and a larger --steps shows more of it"
            )
    if original.torch_version != candidate.torch_version:
        yield (
            f"the original ran with torch {original.torch_version}, the candidate with "
            f"{candidate.torch_version}"
        )
    yield from advisories(original, candidate, comparison)
