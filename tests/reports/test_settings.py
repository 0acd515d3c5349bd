"""`[tool.fsdp-migrate]`, `--select` and `--ignore`."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from reporting import TRAIN, program, write
from typer.testing import CliRunner

from fsdp_migrate.cli.app import app

PROJECT = {"train.py": TRAIN, "old/train.py": TRAIN}


def codes(folder: Path, *arguments: str) -> set[str]:
    told = program("rewrite", "--check", "--format", "json", *arguments, cwd=folder)
    assert told.code in (0, 1), told.err
    return {finding["code"] for finding in json.loads(told.out)["findings"]}


def settings(text: str) -> dict[str, str]:
    return PROJECT | {"pyproject.toml": f"[project]\nname = 'x'\n\n[tool.fsdp-migrate]\n{text}\n"}


def test_settings_hold_as_options_do(tmp_path: Path) -> None:
    write(tmp_path, settings("select = ['FM3']\nexclude = ['old/']"))
    assert codes(tmp_path, ".") == {"FM301"}
    told = program("rewrite", "--check", "--format", "json", ".", cwd=tmp_path)
    assert json.loads(told.out)["searched"] == 1


def test_command_line_takes_the_place_of_settings_and_adds_patterns(tmp_path: Path) -> None:
    write(tmp_path, settings("select = ['FM3']\nexclude = ['old/']"))
    assert codes(tmp_path, "--select", "FM507", ".") == {"FM507"}
    told = program("rewrite", "--check", "--format", "json", "--exclude", "train.py", ".", cwd=tmp_path)
    assert json.loads(told.out)["searched"] == 0


def test_rules_can_be_named(tmp_path: Path) -> None:
    write(tmp_path, PROJECT)
    assert codes(tmp_path, "--select", "clip_grad_norm_", ".") == {"FM301"}
    assert "FM301" not in codes(tmp_path, "--ignore", "clip_grad_norm_", ".")


def test_settings_are_found_above_the_target_up_to_the_repository(tmp_path: Path) -> None:
    repository = write(tmp_path / "outer" / "repository", settings("ignore = ['FM3', 'FM5', 'FM9']"))
    write(tmp_path / "outer", {"pyproject.toml": "[tool.fsdp-migrate]\nselect = ['FM507']\n"})
    subprocess.run(["git", "init", "-q"], cwd=repository, check=True)
    assert codes(repository, "old") == {"FM101"}
    (repository / "pyproject.toml").unlink()
    assert "FM301" in codes(repository, "old")


EXACT_CLASS = """\
from model import Block
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def build(model):
    model = FSDP(model)
    for part in model.modules():
        if type(part) is Block:
            print(part)
    return model
"""


def test_unsafe_fixes_can_be_set_and_unset(tmp_path: Path) -> None:
    def outcome(*options: str) -> str:
        told = program("rewrite", "--check", "--format", "json", *options, ".", cwd=tmp_path)
        (found,) = (f for f in json.loads(told.out)["findings"] if f["code"] == "FM508")
        assert found["safety"] == "unsafe"
        return str(found["outcome"])

    write(tmp_path, {"a.py": EXACT_CLASS})
    assert outcome() == "todo"
    assert outcome("--unsafe-fixes") == "done"
    write(tmp_path, {"pyproject.toml": "[tool.fsdp-migrate]\nunsafe-fixes = true\n"})
    assert outcome() == "done"
    assert outcome("--no-unsafe-fixes") == "todo"


DUAL_STACK = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import fully_shard


def wrap(model, version):
    if version == 1:
        model = FSDP(model, use_orig_params=True)
    elif version == 2:
        fully_shard(model)
    return model
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("selct = ['FM3']", "unknown key selct in [tool.fsdp-migrate]"),
        ("selct = ['FM3']", "Perhaps: select. Known keys: select, ignore, exclude, "),
        ("unsafe_fixes = true", "Perhaps: unsafe-fixes."),
        ("whole-only = 1", "`whole-only` in [tool.fsdp-migrate] is neither true nor false"),
        ("select = ['clip_grad_norm']", "Perhaps: clip_grad_norm_"),
        ("select = 'FM3'", "`select` in [tool.fsdp-migrate] is no list of strings"),
        ("unsafe-fixes = 'yes'", "`unsafe-fixes` in [tool.fsdp-migrate] is neither true nor false"),
        ("target-torch = 2.6", "`target-torch` in [tool.fsdp-migrate] is no string"),
        ("target-torch = '2.3'", "2.3 is too old"),
        ("select = ['FM777']", "no code and no rule is called FM777"),
        ("select = [", "pyproject.toml cannot be read"),
    ],
)
def test_settings_that_mean_nothing_are_bad_usage(tmp_path: Path, text: str, said: str) -> None:
    write(tmp_path, settings(text))
    told = program("rewrite", "--check", ".", cwd=tmp_path)
    assert told.code == 2
    assert said in told.err
    assert "Traceback" not in told.err


MODELS = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def build(model):
    model = FSDP(model)
    return model._handle
"""


@pytest.mark.parametrize(
    ("setting", "on", "off"),
    [
        ("whole-only = true", "--whole-only", "--no-whole-only"),
        ("drop-fsdp1 = true", "--drop-fsdp1", "--no-drop-fsdp1"),
        ("unsafe-fixes = true", "--unsafe-fixes", "--no-unsafe-fixes"),
        ("target-torch = '2.4'", "--target-torch=2.4", "--target-torch=2.6"),
        ("select = ['FM1']", "--select=FM1", "--select=FM"),
        ("ignore = ['FM1']", "--ignore=FM1", "--ignore=FM9"),
        ("exclude = ['old/']", "--exclude=old/", None),
    ],
)
def test_every_setting_does_what_its_option_does_and_the_option_comes_first(
    tmp_path: Path, setting: str, on: str, off: str | None
) -> None:
    files = {"a.py": MODELS, "b.py": EXACT_CLASS, "c.py": DUAL_STACK, "old/d.py": MODELS}

    def said(*options: str, told: str = "") -> str:
        write(tmp_path, {**files, "pyproject.toml": f"[tool.fsdp-migrate]\n{told}\n"})
        done = CliRunner().invoke(app, ["rewrite", "--diff", *options, str(tmp_path)])
        assert done.exit_code in (0, 1), done.output
        return done.stdout

    plain, with_option = said(), said(on)
    assert plain != with_option
    assert said(told=setting) == with_option
    if off is not None:
        assert said(off, told=setting) == plain


def test_every_option_that_shapes_the_result_is_a_setting(tmp_path: Path) -> None:
    """What belongs to one run (--diff, --check, --format, --output, --allow-dirty, ...) is none."""
    help_text = program("rewrite", "--help", cwd=tmp_path).out
    options = set(re.findall(r"^ +--([a-z0-9-]+)", help_text, re.MULTILINE))
    of_one_run = {"diff", "check", "format", "output", "allow-dirty", "undo", "jobs", "help"}
    write(tmp_path, {"pyproject.toml": "[tool.fsdp-migrate]\nno-such-key = 1\n"})
    told = program("rewrite", "--check", ".", cwd=tmp_path).err
    keys = set(re.findall(r"Known keys: (.*)\.", told)[0].split(", "))
    assert options - of_one_run == keys


def test_other_tables_are_none_of_our_business(tmp_path: Path) -> None:
    write(tmp_path, settings("select = ['FM3']\n[tool.fsdp-migrate.verify]\nnproc = 2\n[tool.other]\nx = 1"))
    assert codes(tmp_path, ".") == {"FM301"}


@pytest.mark.parametrize("option", ["--select", "--ignore"])
def test_code_that_does_not_exist_is_bad_usage(tmp_path: Path, option: str) -> None:
    write(tmp_path, PROJECT)
    told = program("rewrite", "--check", option, "clip_grad_norm", ".", cwd=tmp_path)
    assert told.code == 2
    assert "Perhaps: clip_grad_norm_" in told.err
