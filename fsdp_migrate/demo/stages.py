"""What a stage of the demo comes to, and who is told of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from fsdp_migrate.exit_codes import ExitCode


class Outcome(str, Enum):
    """How a stage ended."""

    DONE = "done"
    NEEDS_YOU = "needs you"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of the road, finished.

    Attributes:
        command: what a user would type, in the project's directory.
    """

    title: str
    command: str
    outcome: Outcome
    result: str
    seconds: float


@dataclass(frozen=True, slots=True)
class RoadReport:
    """All stages that were reached, in order."""

    stages: tuple[Stage, ...]
    seconds: float

    @property
    def exit_code(self) -> ExitCode:
        """3 when a job died, 1 when a stage needs a person, else 0."""
        outcomes = {stage.outcome for stage in self.stages}
        if Outcome.FAILED in outcomes:
            return ExitCode.JOB_FAILED
        return ExitCode.NEEDS_YOU if Outcome.NEEDS_YOU in outcomes else ExitCode.OK


class Watcher(Protocol):
    """Is told of every stage as it starts and ends."""

    def started(self, title: str, command: str) -> None: ...

    def finished(self, stage: Stage) -> None: ...


class NeedsYouError(Exception):
    """A stage ran, and its result needs a person; says why."""
