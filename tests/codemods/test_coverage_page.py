"""docs/coverage.md is what the rules and the cases make of it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from codemods.rule import all_rules

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "coverage.md").read_text(encoding="utf-8")


def test_page_is_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, "docs/make_coverage.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_page_has_every_code_once() -> None:
    rows = re.findall(r"^\| .*? \| (FM\d{3}) \|", PAGE, re.MULTILINE)
    assert sorted(rows) == sorted(code for rule in all_rules() for code in rule.codes)


def test_cases_linked_exist() -> None:
    linked = re.findall(r"\]\(\.\./(tests/codemods/cases/[^)]+)\)", PAGE)
    assert linked
    assert [path for path in linked if not (ROOT / path / "before").is_dir()] == []
