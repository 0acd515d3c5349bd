"""Runs the arms for their speed and memory, in turns, so that a slow moment of the machine falls on all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fsdp_migrate.errors import JobError, UsageError
from fsdp_migrate.verify.arms import Verification
from fsdp_migrate.verify.baseline import Source
from fsdp_migrate.verify.model import ArmName, ArmPerformance, Timeline, VerifyRequest
from fsdp_migrate.verify.performance import last_trace, measured, notes_of, timeline_of

if TYPE_CHECKING:
    from fsdp_migrate.verify.reference_job.config import ReferenceConfig

_ROUNDS = 2
_ARMS = (ArmName.ORIGINAL, ArmName.CANDIDATE)


@dataclass(frozen=True, slots=True)
class Speed:
    """What was measured of every arm.

    Args:
        notes: what the reader should know of how it was measured.
    """

    performance: tuple[ArmPerformance, ...]
    timelines: tuple[Timeline, ...]
    notes: tuple[str, ...] = ()


def time_script(run: Verification, request: VerifyRequest, before: Source, after: Source) -> Speed:
    """Time both arms of a user's script, and the original under DDP where that is asked for."""
    rounds = [run.timed(number) for number in range(_ROUNDS)]
    notes: tuple[str, ...] = ()
    arms = (*_ARMS, *_also(run))
    for each in rounds:
        for arm in arms:
            try:
                each.time_script(request, after if arm is ArmName.CANDIDATE else before, arm)
            except (JobError, UsageError) as error:
                if arm in _ARMS:
                    raise
                notes = (f"the original does not run under {arm.value}: {error}",)
        if notes:
            arms = _ARMS
    return _measured(rounds, arms, notes)


def time_reference(run: Verification, config: ReferenceConfig) -> Speed:
    """Time the arms of the bundled job."""
    rounds = [run.timed(number) for number in range(_ROUNDS)]
    arms = (*_ARMS, *_also(run))
    for each in rounds:
        each.time_reference(config, arms)
    return _measured(rounds, arms, ())


def _also(run: Verification) -> tuple[ArmName, ...]:
    return tuple(ArmName(name) for name in run.options.also)


def _measured(rounds: list[Verification], arms: tuple[ArmName, ...], notes: tuple[str, ...]) -> Speed:
    folders = {arm: [each.records / arm.value for each in rounds] for arm in arms}
    performance: list[ArmPerformance] = []
    timelines: list[Timeline] = []
    for arm, each in folders.items():
        trace = last_trace(each)  # one arm's at a time is held
        performance.append(measured(arm, each, trace))
        found = timeline_of(arm, each[-1], trace)
        timelines += [] if found is None else [found]
        if arm not in _ARMS:
            notes = (*notes, *(f"under {arm.value}: {text}" for text in notes_of(each[-1])))
    return Speed(tuple(performance), tuple(timelines), notes)
