"""`rewrite --jobs`: several processes find and write what one does, and end clearly."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from small import children

from codemods.model import Options, Rewrite
from codemods.plan import plan_rewrite
from codemods.sources import find_files
from fsdp_migrate.exit_codes import ExitCode

ROOT = Path(__file__).resolve().parents[2]
CASES = Path(__file__).parent / "cases"
EVERY = 4


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Many cases side by side: every kind of rule has something to say, and many files change."""
    folder = tmp_path_factory.mktemp("tree")
    for number, before in enumerate(sorted(CASES.glob("*/*/*/before"))[::EVERY]):
        shutil.copytree(before, folder / f"part_{number}")
    return folder


@pytest.fixture(scope="module")
def alone(tree: Path) -> Rewrite:
    """What one process comes to."""
    return plan_rewrite(tree, find_files(tree, [tree]), Options(), jobs=1)


@pytest.mark.parametrize("jobs", [2, 5])
def test_processes_come_to_what_one_comes_to(tree: Path, alone: Rewrite, jobs: int) -> None:
    others = children()  # of tests that ran before
    done = plan_rewrite(tree, find_files(tree, [tree]), Options(), jobs=jobs)
    assert done == alone
    assert len(done.changes) > 30 and len({r.finding.code for r in done.reported}) > 30
    assert children() == others


def test_files_that_are_left_alone_are_the_same(tree: Path) -> None:
    files = find_files(tree, [tree])
    options = Options(whole_only=True, unsafe_fixes=True)
    only = frozenset(files[: len(files) // 2])
    one, two = (plan_rewrite(tree, files, options, only=only, jobs=jobs) for jobs in (1, 2))
    assert replace(one, changes=()) == replace(two, changes=())
    assert one.changes == two.changes and one.elsewhere


SLOW = """
import os, sys, time
import codemods.find as find
from codemods.rule import all_rules

here, real = os.getpid(), find._by_rule

def slow(project, rules):
    with open(os.environ["TOLD"], "a") as stream:
        stream.write(f"{os.getpid()}\\n")
    if os.getpid() != here and os.environ.get("DIES"):
        os.kill(os.getpid(), 9)
    time.sleep(float(os.environ["SLEEPS"]))
    return real(project, rules)

find._by_rule = slow
from fsdp_migrate.cli.app import main
main()
"""


def _start(tree: Path, told: Path, **more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SLOW, "rewrite", "--jobs", "3", str(tree)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TOLD": str(told), **more},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def _group_is_empty(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.fixture
def small(tmp_path: Path) -> Path:
    folder = tmp_path / "small"
    folder.mkdir()
    text = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\nmodel = FSDP(net)\n"
    (folder / "a.py").write_text(text)
    return folder


def test_interrupted_by_the_keyboard(small: Path, tmp_path: Path) -> None:
    told = tmp_path / "told"
    before = (small / "a.py").read_text()
    process = _start(small, told, SLEEPS="60")
    end = time.monotonic() + 60
    while not told.exists() or len(told.read_text().split()) < 3:
        assert time.monotonic() < end and process.poll() is None
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to every process
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, output) == (ExitCode.INTERRUPTED, "")
    assert "interrupted" in errors and "Traceback" not in errors
    assert _group_is_empty(process.pid)
    assert (small / "a.py").read_text() == before


def test_a_worker_that_is_killed_is_told(small: Path, tmp_path: Path) -> None:
    before = (small / "a.py").read_text()
    process = _start(small, tmp_path / "told", SLEEPS="0.2", DIES="yes")
    output, errors = process.communicate(timeout=120)
    assert process.returncode == ExitCode.JOB_FAILED and output == ""
    assert "killed by signal 9; nothing was written" in errors and "--jobs 1" in errors
    assert "Traceback" not in errors
    assert _group_is_empty(process.pid)
    assert (small / "a.py").read_text() == before
