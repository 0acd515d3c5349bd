"""Files outside of both arms' copies: written by both, or by the first and read by the second; pure."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from fsdp_migrate.verify.evidence import Evidence
from fsdp_migrate.verify.model import Cause, Check, Outcome
from fsdp_migrate.verify.record import ArmRecord


def passed_on(original: ArmRecord, candidate: ArmRecord) -> list[str]:
    """What the candidate reads of what the original wrote."""
    written = {PurePath(path) for what, path in original.elsewhere if what == "write"}
    folders = {path.parent for path in written}
    read = (PurePath(path) for what, path in candidate.elsewhere if what == "read")
    return sorted(str(path) for path in read if path in written or path.parent in folders)


def apart_check(original: ArmRecord, candidate: ArmRecord) -> list[Check]:
    """Nothing where the arms were kept apart."""
    if not (found := passed_on(original, candidate)):
        return []
    words = f"the candidate reads {found[0]}, which the original wrote"
    return [Check("Arms kept apart", Outcome.DIFFERS, words)]


def shared_output(evidence: Evidence) -> Cause | None:
    """The candidate goes on from what the original left."""
    if not (found := passed_on(evidence.original, evidence.candidate)):
        return None
    return Cause(
        "shared-output",
        f"the candidate reads {found[0]}, which the original wrote in this verification: both arms use one "
        "place outside of the project, so that the second does not start where the first did",
        "let the job write below its working directory, or name the place on its command line: verify gives "
        "each arm one of its own for both",
    )


def written_elsewhere(original: ArmRecord, candidate: ArmRecord) -> Iterator[str]:
    """A warning where the job writes to what belongs to the user."""
    found = sorted({path for arm in (original, candidate) for what, path in arm.elsewhere if what == "write"})
    if found:
        yield (
            f"the job writes outside of its copy, as both arms do in turn: {found[0]} ({len(found)} in all). "
            "A file that was there before is written over. Paths on the command line and below the working "
            "directory lead into a copy; those in configuration files and variables do not: give the place "
            "as an argument after --, where the script takes one, or write it as a relative path"
        )
