"""Runs our own commands as a user would: a process each, in the user's directory."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from fsdp_migrate.errors import JobError
from fsdp_migrate.exit_codes import ExitCode

_PACKAGES = Path(__file__).resolve().parents[2]
_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How a command ended.

    Attributes:
        log: file with its stdout and stderr.
    """

    code: int
    stdout: str
    log: Path

    @property
    def last_line(self) -> str:
        """What it said last, on either stream."""
        lines = [line for line in self.log.read_text().splitlines() if line.strip()]
        return lines[-1] if lines else "no output"


def typed(arguments: tuple[str, ...]) -> str:
    """The command as a user types it."""
    return shlex.join(("fsdp-migrate", *arguments))


def run_command(arguments: tuple[str, ...], cwd: Path, log: Path) -> CommandResult:
    """Run `fsdp-migrate ARGUMENTS`.

    Raises:
        JobError: it took too long, refused its input or died; exit codes 0 and 1 are the caller's to judge.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    path = os.pathsep.join(filter(None, [str(_PACKAGES), os.environ.get("PYTHONPATH", "")]))
    try:
        done = subprocess.run(
            [sys.executable, "-c", "from fsdp_migrate.cli.app import main; main()", *arguments],
            cwd=cwd,
            env={
                **os.environ,
                "PYTHONPATH": path,
                "PYTHONDONTWRITEBYTECODE": "1",
                "CUDA_VISIBLE_DEVICES": "",
            },
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise JobError(f"{typed(arguments)} took over {_TIMEOUT_S:.0f} s") from error
    log.write_text(done.stdout + done.stderr)
    result = CommandResult(done.returncode, done.stdout, log)
    if result.code not in (ExitCode.OK, ExitCode.NEEDS_YOU):
        raise JobError(
            f"{arguments[0]} left with {result.code}: {result.last_line}", hint=f"its output is in {log}"
        )
    return result
