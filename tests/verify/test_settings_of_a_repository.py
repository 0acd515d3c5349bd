"""`[tool.fsdp-migrate.verify]`: what a repository says, what the command line takes over, and `--strict`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from bench import PROJECT
from typer.testing import CliRunner

from fsdp_migrate.cli.app import app
from fsdp_migrate.cli.verify_refusals import refuse_beside
from fsdp_migrate.cli.verify_settings import Chosen, settled
from fsdp_migrate.errors import UsageError
from fsdp_migrate.verify.model import LaunchOptions

ROOT = Path(__file__).parents[2]


def context(*given: str) -> Any:
    """A command line on which these options stand."""

    def source(name: str) -> object:
        return SimpleNamespace(name="COMMANDLINE" if name in given else "DEFAULT")

    return SimpleNamespace(get_parameter_source=source)


def chosen(cwd: Path, **more: Any) -> Chosen:
    defaults: dict[str, Any] = {"script": None, "arguments": (), "module": None, "baseline": None}
    numbers = {"nproc": 2, "steps": 5, "device": "auto", "timeout": 300.0, "strict": False}
    return Chosen(**{**defaults, **numbers, "cwd": cwd, **more})


def write(folder: Path, text: str) -> None:
    (folder / "pyproject.toml").write_text(f"[tool.fsdp-migrate.verify]\n{text}\n")


FULL = """
script = "train.py"
arguments = ["--config", "a.yaml"]
baseline = "main"
nproc = 4
steps = 7
strict = true"""


def test_job_of_the_repository_runs_where_none_is_named(tmp_path: Path) -> None:
    write(tmp_path, FULL)
    (tmp_path / "deep").mkdir()
    found = settled(context(), chosen(tmp_path / "deep", arguments=("--more",)))
    request = found.request(LaunchOptions())
    assert request is not None
    assert (request.script, request.arguments) == ("train.py", ("--config", "a.yaml", "--more"))
    assert (request.baseline, request.cwd) == ("main", tmp_path)
    assert (found.nproc, found.steps, found.strict, found.device) == (4, 7, True, "auto")


def test_command_line_takes_the_place_of_settings(tmp_path: Path) -> None:
    write(tmp_path, FULL)
    found = settled(context("nproc", "script"), chosen(tmp_path, script="other.py", nproc=3))
    request = found.request(LaunchOptions())
    assert request is not None
    assert (request.script, request.arguments, request.cwd) == ("other.py", (), tmp_path)
    assert (found.nproc, found.steps) == (3, 7)


def test_without_a_job_the_reference_job_runs_under_the_settings(tmp_path: Path) -> None:
    write(tmp_path, "nproc = 3")
    found = settled(context(), chosen(tmp_path))
    assert found.request(LaunchOptions()) is None and found.nproc == 3
    (tmp_path / "pyproject.toml").unlink()
    assert settled(context(), chosen(tmp_path)) == chosen(tmp_path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nproc = 'two'", "`nproc` in .* is no int"),
        ("nproc = true", "`nproc` in .* is no int"),
        ("nproc = 0", "`nproc` in .* is less than 1"),
        ("nprocs = 2", "unknown key nprocs"),
        ("arguments = [1]", "no list of strings"),
        ("device = 'tpu'", "none of auto, cuda, cpu"),
        ("script = 'a.py'\nmodule = 'b'", "both a script and a module"),
    ],
)
def test_wrong_setting_is_bad_input(tmp_path: Path, text: str, words: str) -> None:
    write(tmp_path, text)
    with pytest.raises(UsageError, match=words):
        settled(context(), chosen(tmp_path))


def test_a_warning_fails_where_the_repository_is_strict(tmp_path: Path) -> None:
    """The whole way, from pyproject.toml to the exit code: parity holds, and units are gone."""
    for path in PROJECT.glob("*.py"):
        shutil.copy(path, tmp_path / path.name)
    job = 'script = "train_fsdp2.py"\nbaseline = "train_fsdp1.py"\narguments = ["--mistake", "root-only"]'
    write(tmp_path, f'{job}\ndevice = "cpu"\nsteps = 2\nstrict = true')
    done = subprocess.run(
        [sys.executable, "-m", "fsdp_migrate", "verify", "--format", "json"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert found["passed"] is True and found["steps"] == 2
    assert "3 of 4 FSDP units are gone" in found["warnings"][0]


COMMAND: Any = typer.main.get_command(app).get_command(None, "verify")  # type: ignore[attr-defined]
OF_OUTPUT = {"output_format", "output"}
OF_BUNDLED_JOB = {"config", "dtype", "strategy", "accumulate", "tied", "batch", "sequence", "ac"}
BESIDE: dict[str, tuple[str, set[str]]] = {
    "compare": ("--compare a b", OF_OUTPUT | {"strict", "exact"}),
    "record": (
        "--record a",
        {"script", "arguments", "module", "digests", "elements", "nproc", "nnodes", "rdzv_endpoint", "steps"}
        | {"device", "timeout", "keep", "preload", "fixed_order", "exact"},
    ),
    "simulate_world": ("--simulate-world 8", OF_OUTPUT | OF_BUNDLED_JOB | {"device", "timeout"}),
}
VALUES = {"device": "cpu", "also": "ddp", "output_format": "json", "config": "small", "dtype": "bf16"}
VALUES |= {"compare": "a b", "strategy": "no_shard", "ac": "full"}


@pytest.mark.parametrize("asked", BESIDE)
def test_every_option_that_does_nothing_beside_records_or_simulation_is_refused(asked: str) -> None:
    """Of all options that there are, so that a new one is refused until somebody says that it counts."""
    words, counting = BESIDE[asked]
    tried = 0
    for parameter in COMMAND.params:
        if parameter.name in ("help", asked):
            continue
        value = [] if getattr(parameter, "is_flag", False) else VALUES.get(parameter.name, "3").split()
        option = [parameter.opts[0]] if parameter.opts[0].startswith("-") else []
        given = COMMAND.make_context("verify", [*words.split(), *option, *value])
        tried += 1
        if parameter.name in counting:
            refuse_beside(given)
            continue
        if parameter.name in BESIDE:  # either of the two may be named
            option[0] = "(--compare|--record|--simulate-world)"
        with pytest.raises(UsageError, match=f"{option[0] if option else 'a script'} has no place"):
            refuse_beside(given)
    assert tried > 25


def test_what_records_do_nothing_with_is_bad_input() -> None:
    contradictions = (
        "--digests --elements",
        "--exact --nproc 3 --no-fixed-order",
        "--exact --measure-noise",
        "--exact --compile",
        "--tp 2",
        "--cp 2",
        "--pp 2",
        "train.py --ac full",
        "train.py --save-checkpoint old.pt",
    )
    for line in ("train.py --compare a b", "train.py --record a --format json", *contradictions):
        done = CliRunner().invoke(app, ["verify", *line.split()])
        assert done.exit_code == 2, line
