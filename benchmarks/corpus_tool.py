"""Runs the program on a folder as a user would, and says what the run cost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TOOL = [sys.executable, "-m", "fsdp_migrate"]
# Started by a small process of its own: the peak of a child begins at that of the process which forks it.
METER = """\
import json, os, subprocess, sys
with open(sys.argv[1], "wb") as out, open(sys.argv[2], "wb") as err:
    process = subprocess.Popen(sys.argv[3:], stdout=out, stderr=err)
    _, status, usage = os.wait4(process.pid, 0)
cpu_s, peak_bytes = usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024
print(json.dumps([os.waitstatus_to_exitcode(status), cpu_s, peak_bytes]))
"""


class ToolDied(Exception):
    """The program left with another status than 0 or 1, or printed no report; the text says what it said."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding of a report."""

    code: str
    path: str
    line: int
    outcome: str
    message: str


@dataclass(frozen=True, slots=True)
class Site:
    """One wrap site of a report; `form` is `inline`, `helper` or `left`."""

    path: str
    line: int
    form: str


@dataclass(frozen=True, slots=True)
class Run:
    """What one run reported, and what it cost."""

    findings: tuple[Finding, ...]
    sites: tuple[Site, ...]
    changed: tuple[str, ...]
    searched: int
    read: int
    cpu_s: float
    peak_bytes: int

    def open(self) -> set[tuple[str, str]]:
        """(path, code) of what needs a person: the same in a second run. Several of one code in one statement
        share a TODO, and are one from then on."""
        return {(f.path, f.code) for f in self.findings if f.outcome == "todo"}

    def spoken_of(self) -> set[tuple[str, int]]:
        """(path, line) of every finding that is not a translation."""
        return {(f.path, f.line) for f in self.findings if f.outcome != "done"}


def rewrite(folder: Path, scratch: Path, *options: str) -> Run:
    """Run `fsdp-migrate rewrite FOLDER --format json` with these options.

    Raises:
        ToolDied: a crash, or no report.
    """
    out, err = scratch / "report.json", scratch / "errors.txt"
    cost = _metered([*TOOL, "rewrite", str(folder), "--format", "json", *options], out, err)
    try:
        told = json.loads(out.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ToolDied(f"no report: {error}; {err.read_text(errors='replace')[-2000:]}") from error
    return Run(
        tuple(Finding(f["code"], f["path"], f["line"], f["outcome"], f["message"]) for f in told["findings"]),
        tuple(Site(s["path"], s["line"], s["form"]) for s in told["wrap_sites"]),
        tuple(change["path"] for change in told["changed"]),
        told["searched"],
        told["read"],
        *cost,
    )


def undo(folder: Path, scratch: Path) -> None:
    """Run `fsdp-migrate rewrite --undo FOLDER`.

    Raises:
        ToolDied: it did not end well.
    """
    _metered([*TOOL, "rewrite", "--undo", str(folder)], scratch / "undo.txt", scratch / "errors.txt")


def _metered(command: list[str], out: Path, err: Path) -> tuple[float, int]:
    """CPU seconds and peak resident bytes of a process."""
    done = subprocess.run(
        [sys.executable, "-S", "-c", METER, str(out), str(err), *command],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )
    status, cpu_s, peak_bytes = json.loads(done.stdout)
    if status not in (0, 1):
        raise ToolDied(f"exit status {status}: {err.read_text(errors='replace')[-2000:]}")
    return cpu_s, peak_bytes
