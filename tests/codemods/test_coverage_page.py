"""docs/coverage.md is what the rules and the cases make of it, and every pattern and code stands in it."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from codemods.rule import all_rules

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "coverage.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def docs(request: pytest.FixtureRequest) -> dict[str, ModuleType]:
    """The modules that make the page; they rewrite every case once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "docs"))
        names = ("make_coverage", "coverage_patterns", "coverage_cases")
        request.addfinalizer(lambda: [sys.modules.pop(name, None) for name in names])
        return {name: importlib.import_module(name) for name in names}


def test_page_is_up_to_date(docs: dict[str, ModuleType]) -> None:
    assert docs["make_coverage"].page() == PAGE, "run python docs/make_coverage.py"


def test_page_has_every_code_once() -> None:
    rows = re.findall(r"^\| .*? \| (FM\d{3}) \|", PAGE, re.MULTILINE)
    assert sorted(rows) == sorted(code for rule in all_rules() for code in rule.codes)


def test_cases_and_tests_linked_exist() -> None:
    linked = re.findall(r"\]\(\.\./(tests/[^)]+)\)", PAGE)
    cases = {path for path in linked if path.startswith("tests/codemods/cases/")}
    assert cases
    assert [path for path in cases if not (ROOT / path / "before").is_dir()] == []
    assert [path for path in linked if path not in cases and not (ROOT / path).is_file()] == []


def test_every_code_has_a_case_or_a_test(docs: dict[str, ModuleType]) -> None:
    cases = docs["coverage_cases"]
    given = {item.finding.code for case in cases.shown_cases() for item in case.reported}
    named = set(cases.tests_by_code())
    assert [code for rule in all_rules() for code in rule.codes if code not in given | named] == []


def test_every_pattern_is_translated_and_run_or_refused_with_a_remedy(docs: dict[str, ModuleType]) -> None:
    assert list(docs["coverage_patterns"].faults()) == []


def test_patterns_are_numbered_without_gaps(docs: dict[str, ModuleType]) -> None:
    ids = [pattern.id for pattern in docs["coverage_patterns"].patterns()]
    assert ids == [f"P{n}" for n in range(1, 28)] + [f"H{n}" for n in range(1, 33)]
