"""The files of real FSDP1 jobs, made once per test run."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

HERE = Path(__file__).parent
OLD_TORCH = HERE.parent / "old_torch"
sys.path.insert(0, str(OLD_TORCH))  # for `tiny_model:TinyModel`


@pytest.fixture(scope="session")
def fsdp1_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder per job of `fsdp1_jobs`; under xdist the first worker makes them for all."""
    base = tmp_path_factory.getbasetemp()
    out = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "fsdp1_files"
    try:
        out.mkdir()
    except FileExistsError:
        _wait_for(out / "done")
        return out
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(HERE.parents[2]), str(HERE)]),
        "OMP_NUM_THREADS": "1",
    }
    run = subprocess.run(
        [sys.executable, "-W", "ignore", str(HERE / "fsdp1_jobs.py"), str(out)],
        env=env,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-4000:]
    return out


def _wait_for(path: Path) -> None:
    until = time.monotonic() + 280
    while not path.exists():
        assert time.monotonic() < until, f"{path} was not made"
        time.sleep(0.2)


@pytest.fixture(scope="session")
def old_torch() -> Path:
    """The corpus of files that old torch releases wrote."""
    return OLD_TORCH
