"""The road's verdict, and what it does when a job dies on it."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fsdp_migrate.demo.road import PROJECT, Road
from fsdp_migrate.demo.stages import Outcome, RoadReport, Stage
from fsdp_migrate.exit_codes import ExitCode

ROOT = Path(__file__).parents[2]


class Listener:
    def __init__(self) -> None:
        self.heard: list[str] = []

    def started(self, title: str, command: str) -> None:
        self.heard.append(command)

    def finished(self, stage: Stage) -> None:
        self.heard.append(stage.outcome.value)


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ([Outcome.DONE, Outcome.DONE], ExitCode.OK),
        ([Outcome.DONE, Outcome.NEEDS_YOU, Outcome.DONE], ExitCode.NEEDS_YOU),
        ([Outcome.NEEDS_YOU, Outcome.FAILED], ExitCode.JOB_FAILED),
    ],
)
def test_exit_code_is_that_of_the_worst_stage(outcomes: list[Outcome], expected: ExitCode) -> None:
    stages = tuple(Stage("title", "command", outcome, "result", 1.0) for outcome in outcomes)
    assert RoadReport(stages, 2.0).exit_code is expected


def test_job_that_dies_ends_the_road_with_its_reason(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(PROJECT, broken)
    (broken / "data" / "harbour.txt").unlink()
    listener = Listener()
    report = Road(tmp_path / "work", 2, listener, source=broken).walk()
    assert report.exit_code is ExitCode.JOB_FAILED
    assert [stage.outcome for stage in report.stages] == [Outcome.DONE, Outcome.FAILED]
    died = report.stages[-1]
    assert "harbour.txt" in died.result
    assert "of 2 (train.py) failed: FileNotFoundError" in died.result
    assert died.command.startswith("torchrun --nproc-per-node 2 train.py ")
    assert listener.heard == [report.stages[0].command, "done", died.command, "failed"]


def test_interrupt_leaves_no_process_and_no_directory(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    # Torch's compiler makes its cache for the user when it is imported, here out of the way.
    cache = str(tmp_path_factory.mktemp("inductor"))
    demo = subprocess.Popen(
        [sys.executable, "-m", "fsdp_migrate", "demo"],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(tmp_path), "TORCHINDUCTOR_CACHE_DIR": cache},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until = time.monotonic() + 60
    while sum(len(processes_in(project)) for project in tmp_path.glob("*/project")) < 2:
        assert time.monotonic() < until and demo.poll() is None
        time.sleep(0.05)
    demo.send_signal(signal.SIGINT)
    stdout, stderr = demo.communicate(timeout=30)
    assert demo.returncode == ExitCode.INTERRUPTED, stderr
    assert "interrupted" in stderr
    assert stdout == ""
    assert processes_in(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def processes_in(directory: Path) -> list[int]:
    """Processes that have it, or a directory below, as working directory; also after its removal."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if str((entry / "cwd").readlink()).startswith(str(directory)):
                found.append(int(entry.name))
    return found
