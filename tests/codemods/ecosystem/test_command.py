"""`fsdp-migrate rewrite` on a repository with configuration, scripts, Python and a notebook."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.program import run_program

FILES = {
    "accelerate.yaml": (
        "distributed_type: FSDP  # all\nfsdp_config:\n  fsdp_sharding_strategy: FULL_SHARD\n"
        "  fsdp_state_dict_type: FULL_STATE_DICT\nnum_processes: 8\n"
    ),
    "run.sh": '#!/bin/sh\ntorchrun train.py --fsdp "full_shard auto_wrap" --output_dir out\n',
    "train.py": (
        "from accelerate import FullyShardedDataParallelPlugin\n\n"
        "plugin = FullyShardedDataParallelPlugin(use_orig_params=True)\n"
    ),
    "conf/fsdp.json": '{\n  "use_orig_params": true,\n  "transformer_layer_cls_to_wrap": ["A"]\n}\n',
    "notes.json": '{"fsdp": "a word"}\n',
    "nb.ipynb": json.dumps(
        {
            "cells": [
                {
                    "cell_type": "code",
                    "execution_count": None,
                    "metadata": {},
                    "outputs": [],
                    "source": [
                        "from accelerate import FullyShardedDataParallelPlugin\n",
                        "p = FullyShardedDataParallelPlugin()",
                    ],
                }
            ],
            "metadata": {},
            "nbformat": 4,
            "nbformat_minor": 5,
        },
        indent=1,
    )
    + "\n",
}
CHANGED = ["accelerate.yaml", "conf/fsdp.json", "nb.ipynb", "run.sh", "train.py"]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    (tmp_path / "run.sh").chmod(0o755)
    for command in (
        ["init", "-q"],
        ["add", "-A"],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"],
    ):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    return tmp_path


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_program("rewrite", *arguments)


def contents(folder: Path) -> dict[str, str]:
    return {name: (folder / name).read_text() for name in FILES}


def test_diff_check_manifest_and_undo_cover_every_kind_of_file(repository: Path) -> None:
    check = run("--check", "--format", "json", str(repository))
    assert check.returncode == 1
    report = json.loads(check.stdout)
    assert [change["path"] for change in report["changed"]] == CHANGED
    assert report["configurations"] == {"searched": 4, "read": 4}
    assert contents(repository) == FILES

    diff = run("--diff", str(repository))
    assert contents(repository) == FILES
    applied = subprocess.run(["git", "apply", "-"], cwd=repository, input=diff.stdout, text=True, check=False)
    assert applied.returncode == 0
    by_diff = contents(repository)
    subprocess.run(["git", "checkout", "-q", "."], cwd=repository, check=True)

    written = run(str(repository))
    assert written.returncode == 0, written.stderr
    assert contents(repository) == by_diff
    assert [name for name in FILES if by_diff[name] != FILES[name]] == sorted(CHANGED, key=list(FILES).index)
    assert (repository / "run.sh").stat().st_mode & 0o777 == 0o755
    manifest = json.loads((repository / ".fsdp-migrate/manifest.json").read_text())
    assert [file["path"] for file in manifest["files"]] == CHANGED
    assert "Of 4 configuration files" in written.stdout

    clean = run("--check", "--allow-dirty", str(repository))
    assert clean.returncode == 0
    assert run("--undo", str(repository)).returncode == 0
    assert contents(repository) == FILES


def test_one_configuration_file_can_be_named_alone(repository: Path) -> None:
    done = run(str(repository / "accelerate.yaml"))
    assert done.returncode == 0
    now = contents(repository)
    assert [name for name in FILES if now[name] != FILES[name]] == ["accelerate.yaml"]


@pytest.mark.parametrize("code", ["FM601", "FM610", "FM614", "FM616", "FM620", "FM630", "FM640"])
def test_every_code_has_a_manual_page(code: str) -> None:
    from codemods.rule import all_rules

    (rule,) = [rule for rule in all_rules() if code in rule.codes]
    assert len(rule.manual.split()) > 40
