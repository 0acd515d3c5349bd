"""Errors of the front.

MigrateError            what, where, what to do next; ends a command with its `exit_code`
├── UsageError          2  bad option, configuration or input
└── JobError            3  a job could not be launched, or died
"""

from fsdp_migrate.exit_codes import ExitCode


class MigrateError(Exception):
    """An error a person can act on.

    Args:
        message: what went wrong, and where.
        hint: what to do next; shown on a line of its own.
    """

    exit_code: ExitCode = ExitCode.BAD_INPUT

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(MigrateError):
    """A bad option, configuration or input."""


class JobError(MigrateError):
    """A job could not be launched, or died."""

    exit_code = ExitCode.JOB_FAILED
