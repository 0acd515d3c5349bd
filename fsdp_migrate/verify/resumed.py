"""What both arms resume from, and whether they did; pure."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fsdp_migrate.verify.model import Cause, Check, Outcome

if TYPE_CHECKING:
    from fsdp_migrate.verify.evidence import Evidence
    from fsdp_migrate.verify.record import ArmRecord

_UNSEEN = "safetensors"
"""Its library opens files out of sight."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """The checkpoint that both arms resume from.

    Args:
        old: absolute path of what the original loads.
        new: of what the candidate loads.
        became: how the one came of the other, for the reader; "" where they are the same.
    """

    old: str
    new: str
    became: str

    @property
    def words(self) -> str:
        """For the report."""
        old = os.path.normpath(self.old)
        if not self.became:
            return f"both arms resume from {old}, which FSDP2 loads as it is"
        return f"both arms resume from {old}: the original loads it, the candidate what {self.became}"


def resumed_check(original: ArmRecord, candidate: ArmRecord) -> list[Check]:
    """Whether each arm opened what it was to resume from; none where nothing was to be resumed."""
    title = "Resumed from the checkpoint"
    asked = [arm for arm in (original, candidate) if arm.resumes]
    if not asked:
        return []
    lacking = _not_opened(original, candidate)
    if not lacking:
        return [Check(title, Outcome.EQUAL, "after loading, weights and the optimizer's state are compared")]
    detail = f"the {' and the '.join(lacking)} never opened it"
    if all(_is_out_of_sight(arm.resumes) for arm in asked if not arm.resumed):
        return [Check(title, Outcome.NOT_OBSERVED, f"{detail}, as far as can be seen of safetensors")]
    return [Check(title, Outcome.DIFFERS, detail)]


def not_resumed(evidence: Evidence) -> Cause | None:
    """An arm that never opened the checkpoint it was given proves nothing of it."""
    lacking = _not_opened(evidence.original, evidence.candidate)
    arms = {"original": evidence.original, "candidate": evidence.candidate}
    if not lacking or all(_is_out_of_sight(arms[name].resumes) for name in lacking):
        return None
    path = arms[lacking[0]].resumes
    return Cause(
        "not-resumed",
        f"the {' and the '.join(lacking)} never opened the checkpoint to resume from"
        + (f" ({path})" if len(lacking) == 1 else "")
        + ": it starts anew, or from something else",
        "does the script take this argument, and load from it? A loader may look for a name, a suffix or a "
        "folder of its own: --convert '--to torch', '--layout ...' and --converted DIR give it others",
    )


def _not_opened(original: ArmRecord, candidate: ArmRecord) -> list[str]:
    arms = (("original", original), ("candidate", candidate))
    return [name for name, arm in arms if arm.resumes and not arm.resumed]


def _is_out_of_sight(path: str) -> bool:
    return Path(path).suffix == f".{_UNSEEN}" or any(Path(path).glob(f"*.{_UNSEEN}"))
