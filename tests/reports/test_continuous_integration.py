"""The pre-commit hooks and the workflow of the documentation run as they are written."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from reporting import ROOT, TRAIN, write

HOOKS: list[dict[str, Any]] = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
PAGE = (ROOT / "docs" / "continuous-integration.md").read_text()
CLEAN = "import torch\n\nmodel = torch.nn.Linear(2, 2)\n"


@pytest.fixture
def path_with_program(tmp_path: Path) -> str:
    """A PATH on which `fsdp-migrate` is this checkout's."""
    shim = write(
        tmp_path / "bin", {"fsdp-migrate": f'#!/bin/sh\nexec "{sys.executable}" -m fsdp_migrate "$@"\n'}
    )
    (shim / "fsdp-migrate").chmod(0o755)
    return f"{shim}:{os.environ['PATH']}"


def run(command: list[str], cwd: Path, path: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), **more},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def repository(folder: Path, files: dict[str, str]) -> Path:
    write(folder, files)
    for command in (["init", "-q"], ["add", "-A"]):
        subprocess.run(["git", *command], cwd=folder, check=True)
    return folder


def commit(folder: Path, *, tag: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    for command in (["commit", "-qm", "all"], ["tag", tag]):
        subprocess.run(["git", *identity, *command], cwd=folder, check=True)


@pytest.mark.parametrize("hook", HOOKS, ids=[hook["id"] for hook in HOOKS])
def test_hook_passes_a_clean_repository_and_fails_one_with_fsdp1(
    hook: dict[str, Any], tmp_path: Path, path_with_program: str
) -> None:
    assert hook["pass_filenames"] is False
    command = [*shlex.split(hook["entry"]), *hook["args"]]
    clean = repository(tmp_path / "clean", {"a.py": CLEAN})
    passed = run(command, clean, path_with_program)
    assert passed.returncode == 0, passed.stderr
    dirty = repository(tmp_path / "dirty", {"a.py": CLEAN, "deep/train.py": TRAIN})
    failed = run(command, dirty, path_with_program)
    assert failed.returncode == 1, failed.stderr
    assert "deep/train.py:15:11: FM507" in failed.stdout
    assert (dirty / "deep" / "train.py").read_text() == TRAIN


def test_pre_commit_itself_runs_the_hook(tmp_path: Path, path_with_program: str) -> None:
    """From a clone, as the page configures it; the hook of the active environment needs no installing."""
    hooks = repository(
        tmp_path / "hooks", {".pre-commit-hooks.yaml": (ROOT / ".pre-commit-hooks.yaml").read_text()}
    )
    told = yaml.safe_load(_block("## pre-commit"))
    commit(hooks, tag=told["repos"][0]["rev"])
    told["repos"][0]["repo"] = str(hooks)
    told["repos"][0]["hooks"] = [{"id": "fsdp-migrate-system"}]
    config = {".pre-commit-config.yaml": yaml.safe_dump(told)}
    home = {"PRE_COMMIT_HOME": str(tmp_path / "home"), "PRE_COMMIT_COLOR": "never"}
    command = [sys.executable, "-m", "pre_commit"]

    write(tmp_path, config)
    for name, file in (
        ("manifest", ROOT / ".pre-commit-hooks.yaml"),
        ("config", tmp_path / ".pre-commit-config.yaml"),
    ):
        checked = run([*command, f"validate-{name}", str(file)], tmp_path, path_with_program, **home)
        assert checked.returncode == 0, checked.stdout
    clean = repository(tmp_path / "clean", {"a.py": CLEAN, **config})
    passed = run([*command, "run", "--all-files"], clean, path_with_program, **home)
    assert passed.returncode == 0, passed.stdout + passed.stderr
    assert re.search(r"^no FSDP1 code left\.+Passed$", passed.stdout, re.MULTILINE)
    # One file is committed; what is found stands in another: the whole repository is looked at.
    dirty = repository(tmp_path / "dirty", {"a.py": CLEAN, "deep/train.py": TRAIN, **config})
    failed = run([*command, "run", "--files", "a.py"], dirty, path_with_program, **home)
    assert failed.returncode == 1, failed.stdout + failed.stderr
    assert re.search(r"^no FSDP1 code left\.+Failed$", failed.stdout, re.MULTILINE)
    assert "deep/train.py:15:11: FM507" in failed.stdout
    assert (dirty / "deep" / "train.py").read_text() == TRAIN


def test_hook_names_the_documented_ones() -> None:
    told = yaml.safe_load(_block("## pre-commit"))
    documented = {hook["id"] for repo in told["repos"] for hook in repo["hooks"]}
    assert documented <= {hook["id"] for hook in HOOKS}


def test_workflow_commands_run(tmp_path: Path, path_with_program: str) -> None:
    workflow = yaml.safe_load(_block("<!-- workflow -->"))
    (job,) = workflow["jobs"].values()
    commands = {step["name"]: step["run"] for step in job["steps"] if "run" in step}
    project = re.search(r'^name = "(.+)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert project is not None
    assert commands.pop("Install") == f"python -m pip install {project[1]}"
    folder = repository(tmp_path / "dirty", {"src/train.py": TRAIN})
    summary = tmp_path / "summary.md"
    codes = {
        name: run(["bash", "-e", "-c", text], folder, path_with_program, GITHUB_STEP_SUMMARY=str(summary))
        for name, text in commands.items()
    }
    assert {name: done.returncode for name, done in codes.items()} == {"Check": 1, "Page": 0, "Summary": 0}
    uploaded = {step["uses"].split("@")[0]: step["with"] for step in job["steps"] if "with" in step}
    sarif = folder / uploaded["github/codeql-action/upload-sarif"]["sarif_file"]
    (log,) = json.loads(sarif.read_text())["runs"]
    uris = {r["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for r in log["results"]}
    assert uris == {"src/train.py"}
    assert (folder / uploaded["actions/upload-artifact"]["path"]).read_text().startswith("<!doctype html>")
    assert "## Summary" in summary.read_text()


def test_documented_settings_are_known(tmp_path: Path, path_with_program: str) -> None:
    files = {"a.py": CLEAN, "pyproject.toml": _block("# In continuous integration", "toml")}
    folder = repository(tmp_path / "r", files)
    done = run(["fsdp-migrate", "rewrite", "--check", "."], folder, path_with_program)
    assert done.returncode == 0, done.stderr


def _block(after: str, language: str = "yaml") -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE[PAGE.index(after) :], re.DOTALL)
    assert found is not None
    return found[1]
