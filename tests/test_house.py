"""The house rules: linter, formatter, types and import contracts hold; start-up imports stay small."""

import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


_PINNED = re.findall(r"^torch==(\S+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)


@pytest.mark.parametrize(
    "command",
    [
        ["ruff", "check", "."],
        ["ruff", "format", "--check", "."],
        ["mypy"],
        ["importlinter.cli", "lint-imports"],
    ],
    ids=["ruff check", "ruff format", "mypy --strict", "import-linter"],
)
def test_tool_finds_nothing(command: list[str]) -> None:
    run = [sys.executable, "-m", *command]
    if command == ["mypy"] and metadata.version("torch").partition("+")[0] not in _PINNED:
        # Types of torch differ by release: what is unused with one is needed with another.
        run += ["--no-warn-unused-ignores", "--no-warn-return-any", "--allow-untyped-calls"]
    if command[0] == "importlinter.cli":
        run = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()"]
    done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_start_up_imports_neither_torch_nor_libcst(option: str) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "fsdp_migrate", option],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    imported = {line.rsplit("|", 1)[-1].strip() for line in done.stderr.splitlines()}
    assert "fsdp_migrate.cli.app" in imported
    assert not imported & {"torch", "libcst", "numpy", "rich.console"}
