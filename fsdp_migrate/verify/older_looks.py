"""Leaves out what one of two records lacks because the program that made it did not look there; pure."""

from __future__ import annotations

import re

from fsdp_migrate.verify.model import ANSWER, AT_THE_END, SAVED
from fsdp_migrate.verify.record import ArmRecord

_OF_OTHERS = re.compile(r"other\d+(\.|$)")


def seen_alike(original: ArmRecord, candidate: ArmRecord) -> None:
    """Nothing is concluded from what an older program did not record, or one that was stopped elsewhere.

    Before records say that they look on, an arm was stopped with its last step: nothing of evaluation, of
    saving after that step and of averages in the end is in them.
    """
    for older, newer in ((original, candidate), (candidate, original)):
        if newer.looks_on and not older.looks_on:
            _as_older(newer, older.last_step)
    ends = [_ends(arm) for arm in (original, candidate)]
    if ends[0] != ends[1]:
        for arm in (original, candidate):
            for parts in arm.parts.values():
                for name in [name for name in parts if AT_THE_END in name]:
                    del parts[name]


def _as_older(arm: ArmRecord, last: int) -> None:
    arm.answers.clear()
    arm.units = [unit for unit in arm.units if not _OF_OTHERS.match(unit.name)]
    arm.saves = [one for one in arm.saves if one.step < last]
    arm.parts = {
        (step, quantity): parts
        for (step, quantity), parts in arm.parts.items()
        if quantity != ANSWER and (quantity != SAVED or step < last)
    }


def _ends(arm: ArmRecord) -> set[int]:
    return {step for (step, _), parts in arm.parts.items() if any(AT_THE_END in name for name in parts)}
