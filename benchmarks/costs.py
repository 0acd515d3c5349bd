"""What a process costs, and how it is shown: CPU seconds, wall seconds, peak memory, rows of a table."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
ENVIRONMENT.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed program is compiled once, not at every start


@dataclass(frozen=True, slots=True)
class Cost:
    """What one process took, with those that it waited for.

    Attributes:
        cpu_s: user and system seconds.
        peak_bytes: of resident memory, of the largest process.
        is_whole: it came to its end within the limit.
        said: the last of what it wrote.
    """

    cpu_s: float
    wall_s: float
    peak_bytes: int
    is_whole: bool = True
    said: str = ""

    @property
    def shown(self) -> str:
        """CPU seconds for the table."""
        return f"{'' if self.is_whole else '> '}{self.cpu_s:.2f} s"


@dataclass(frozen=True, slots=True)
class Figure:
    """One row: what was measured, peer and tool, and the limit on their ratio or on the tool alone."""

    what: str
    peer: str
    tool: str
    ratio: float
    limit: float

    @property
    def row(self) -> str:
        """As a line of the table."""
        verdict = "yes" if self.ratio <= self.limit else "**no**"
        return (
            f"| {self.what} | {self.peer} | {self.tool} | {self.ratio:.3g} | {self.limit:.3g} | {verdict} |"
        )


def cost(command: list[str], cwd: Path, *, limit_s: int = 300) -> Cost:
    """Run a process to its end, or for `limit_s` CPU seconds.

    Raises:
        SystemExit: it failed, so that what it took means nothing.
    """
    with tempfile.TemporaryFile() as output:
        started = time.monotonic()
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env=ENVIRONMENT,
            stdout=output,
            stderr=subprocess.STDOUT,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s)),
        )
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.monotonic() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        said = output.read().decode(errors="replace")
    spent = usage.ru_utime + usage.ru_stime
    is_whole = process.returncode >= 0
    if process.returncode not in (0, 1, -signal.SIGKILL, -signal.SIGXCPU) or "Traceback (most" in said:
        raise SystemExit(f"{' '.join(command)} left with {process.returncode}:\n{said[-2000:]}")
    return Cost(spent, wall_s, usage.ru_maxrss * 1024, is_whole, said[-2000:])


def against(what: str, peer: list[str], tool: list[str], cwd: Path, repeats: int, limit: float) -> Figure:
    """Peer and tool in turn, once to fill caches and then `repeats` times; the least of each."""
    cost(peer, cwd)
    cost(tool, cwd)
    runs = [(cost(peer, cwd), cost(tool, cwd)) for _ in range(repeats)]
    least_peer, least_tool = (min(run[i].cpu_s for run in runs) for i in (0, 1))
    return Figure(what, f"{least_peer:.3f} s", f"{least_tool:.3f} s", least_tool / least_peer, limit)
