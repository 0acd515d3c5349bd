"""One table of exit codes for all commands."""

from enum import IntEnum


class ExitCode(IntEnum):
    """What a command's exit status says to the shell that called it."""

    OK = 0
    """Done; parity holds."""
    NEEDS_YOU = 1
    """Ran, and something needs a person: findings, `--check` would change files, parity fails."""
    BAD_INPUT = 2
    """Bad usage, configuration or input."""
    JOB_FAILED = 3
    """A job could not be launched, or died."""
    BUG = 101
    """A fault of this tool."""
    INTERRUPTED = 130
    """Ctrl-C."""
