"""One table of exit codes for all commands: what a shell script that calls them may rely on."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fsdp_migrate.cli import app
from fsdp_migrate.demo.road import PROJECT
from fsdp_migrate.errors import JobError
from fsdp_migrate.exit_codes import ExitCode
from tests.program import run_program

ROOT = Path(__file__).parents[2]
OLD_TORCH = ROOT / "tests" / "checkpoint_convert" / "old_torch"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with an FSDP1 project, one without FSDP, and some files that are no checkpoint."""
    place = tmp_path_factory.mktemp("place")
    shutil.copytree(PROJECT, place / "project", ignore=shutil.ignore_patterns("__pycache__"))
    (place / "plain").mkdir()
    (place / "plain" / "train.py").write_text("import torch\n")
    (place / "notes.txt").write_text("no checkpoint\n")
    shutil.copy(OLD_TORCH / "torch-2.4.1_world3_flat" / "truth.pt", place / "full.pt")
    (place / "existing").mkdir()
    (place / "existing" / "results.csv").write_text("1,2\n")
    return place


def run(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_program(*arguments, cwd=place, env=os.environ | {"CUDA_VISIBLE_DEVICES": ""})


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("rewrite", "--check", "plain"), 0, ""),
        (("rewrite", "--check", "project"), 1, "FM401"),
        (("rewrite", "--diff", "project"), 1, "+++ "),
        (("rewrite", "nowhere"), 2, "nowhere"),
        (("rewrite", "project", "--target-torch", "1.13"), 2, "1.13"),
        (("explain", "FM401"), 0, "state_dict_type"),
        (("explain", "FM000"), 2, "FM000"),
        (("rules",), 0, "FM401"),
        (("convert-ckpt", "nowhere.pt", "out"), 2, "nowhere.pt"),
        (("convert-ckpt", "notes.txt", "out"), 2, "notes.txt"),
        (("convert-ckpt", "full.pt", "existing"), 2, "existing"),
        (("inspect-ckpt", "nowhere.pt"), 2, "nowhere.pt"),
        (("inspect-ckpt", "notes.txt"), 2, "notes.txt"),
        (("capture-layout", "layout.json", "--model", "nowhere:build"), 2, "nowhere"),
        (("capture-layout", "notes.txt", "--model", "json:loads"), 2, "exists already"),
        (("verify", "nowhere.py"), 2, "nowhere.py"),
        (("verify", "plain/train.py"), 2, "baseline"),
        (("verify", "--nproc", "0"), 2, "--nproc"),
        (("verify", "plain/train.py", "--save"), 2, "after --: verify SCRIPT -- --save"),
        (("verify", "--baseline", "HEAD"), 2, "SCRIPT"),
        (("verify", "plain/train.py", "--dtype", "bf16"), 2, "-- --dtype"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_exit_code(place: Path, arguments: tuple[str, ...], code: int, said: str) -> None:
    done = run(place, *arguments)
    assert done.returncode == code, done.stdout + done.stderr
    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    if code == 2:
        assert done.stdout == "", "an error belongs on stderr"
    assert not (place / "out").exists()
    assert [path.name for path in (place / "existing").iterdir()] == ["results.csv"]
    assert (place / "project" / "sharding.py").read_bytes() == (PROJECT / "sharding.py").read_bytes()


def test_layout_is_captured_where_the_command_stands(place: Path) -> None:
    done = run(place / "project", "capture-layout", "../layout.json", "--model", "train:build_model")
    assert done.returncode == 0, done.stderr
    assert "27 parameters" in done.stdout
    assert (place / "layout.json").exists()


def test_reader_that_goes_away_is_no_fault(place: Path) -> None:
    done = subprocess.run(
        f"{sys.executable} -m fsdp_migrate rewrite --diff project | head -n 1; exit ${{PIPESTATUS[0]}}",
        shell=True,
        executable="/bin/bash",
        cwd=place,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Traceback" not in done.stderr
    assert "fault of fsdp-migrate" not in done.stderr
    assert done.returncode in (0, 1)


def test_a_kept_directory_that_cannot_be_made_is_bad_usage(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    command = [sys.executable, "-m", "fsdp_migrate", "verify", "--keep", str(tmp_path / "file" / "records")]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2, done.stderr
    assert "it cannot be made: Not a directory" in done.stderr and "hint:" in done.stderr


def test_what_an_error_quotes_of_a_job_steers_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    code = app._explain(JobError("ValueError: \x1b[31mred\x1b[0m\nin line 3", hint="look there"))
    assert code is ExitCode.JOB_FAILED
    said = capsys.readouterr().err
    assert "error: ValueError: <U+001B>[31mred<U+001B>[0m\nin line 3\n" in said
