"""One small project, reported once in every form."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from reporting import FILES, Told, program, write


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project in `pkg/` of a git repository."""
    folder = write(tmp_path_factory.mktemp("reports") / "repository", FILES)
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    return folder


@pytest.fixture(scope="session")
def reports(repository: Path) -> dict[str, Told]:
    """The report of `rewrite --check pkg` by format."""
    return {
        form: program("rewrite", "--check", "--format", form, "pkg", cwd=repository)
        for form in ("text", "json", "sarif", "html", "md")
    }
