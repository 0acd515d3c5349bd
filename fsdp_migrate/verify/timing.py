"""Runs both arms for their speed and memory, in turns, so that a slow moment of the machine falls on both."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsdp_migrate.verify.arms import Verification
from fsdp_migrate.verify.baseline import Source
from fsdp_migrate.verify.model import ArmName, ArmPerformance, VerifyRequest
from fsdp_migrate.verify.performance import measured

if TYPE_CHECKING:
    from fsdp_migrate.verify.reference_job.config import ReferenceConfig

_ROUNDS = 2
_ARMS = (ArmName.ORIGINAL, ArmName.CANDIDATE)


def time_script(
    run: Verification, request: VerifyRequest, before: Source, after: Source
) -> tuple[ArmPerformance, ...]:
    """Time both arms of a user's script."""
    rounds = [run.timed(number) for number in range(_ROUNDS)]
    for each in rounds:
        each.time_script(request, before, ArmName.ORIGINAL)
        each.time_script(request, after, ArmName.CANDIDATE)
    return _measured(rounds)


def time_reference(run: Verification, config: ReferenceConfig) -> tuple[ArmPerformance, ...]:
    """Time both arms of the bundled job."""
    rounds = [run.timed(number) for number in range(_ROUNDS)]
    for each in rounds:
        each.time_reference(config, _ARMS)
    return _measured(rounds)


def _measured(rounds: list[Verification]) -> tuple[ArmPerformance, ...]:
    return tuple(measured(arm, [each.records / arm.value for each in rounds]) for arm in _ARMS)
