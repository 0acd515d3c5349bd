"""Every case folder against the laws of a rewrite, all in this one place."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import laws
import pytest
import tool
from case import Case, all_cases

CASES = all_cases()
# Linter rules a rewrite may not add to: pyflakes (undefined, unused), and style where the input was clean.
LINTER_RULES = "E,F,W,I"


@dataclass(frozen=True, slots=True)
class Run:
    """One case rewritten: `folder` holds the result, `again` what a second rewrite of the result said."""

    case: Case
    folder: Path
    first: tool.Result
    again: tool.Result
    changed_again: list[str]


class Runs:
    """Rewrites each case once, when first asked."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._done: dict[str, Run] = {}

    def of(self, case: Case) -> Run:
        if case.id not in self._done:
            folder = self._scratch / "after" / case.id
            shutil.copytree(case.before, folder)
            first = tool.rewrite_in_place(folder, case.options)
            written = laws.contents(folder)
            twice = self._scratch / "twice" / case.id
            shutil.copytree(folder, twice)
            again = tool.rewrite_in_place(twice, case.options)
            rewritten = laws.contents(twice)
            changed = sorted(name for name in rewritten if rewritten[name] != written.get(name))
            self._done[case.id] = Run(case, folder, first, again, changed)
        return self._done[case.id]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("cases"))


@pytest.fixture(scope="module")
def linted(tmp_path_factory: pytest.TempPathFactory) -> laws.Linted:
    """What the linter and the formatter say of every case, before and as it is expected to become."""
    folders = {folder for case in CASES for folder in (case.before, case.after)}
    return laws.Linted(folders, LINTER_RULES, tmp_path_factory.mktemp("linted"))


@pytest.fixture(params=CASES, ids=lambda case: case.id)
def run(request: pytest.FixtureRequest, runs: Runs) -> Iterator[Run]:
    done = runs.of(request.param)
    if request.config.getoption("--update-cases"):
        done.case.accept(done.folder, _text(done.first.lines))
    yield done


def _text(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def test_result_and_findings_are_the_expected_ones(run: Run) -> None:
    expected, got = laws.contents(run.case.after), laws.contents(run.folder)
    assert sorted(got) == sorted(expected)
    for name, content in expected.items():
        assert got[name].decode() == content.decode(), name
    assert _text(run.first.lines) == run.case.findings


def test_result_parses(run: Run) -> None:
    assert laws.parse_errors(run.folder) == laws.parse_errors(run.case.before)


# Of what the case expects, which is what the rewriter makes of it (the first test above).
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_linter_has_nothing_new_to_say(case: Case, linted: laws.Linted) -> None:
    assert laws.introduced(linted.findings[case.before], linted.findings[case.after]) == []
    assert linted.unformatted[case.after] <= linted.unformatted[case.before]


def test_rewriting_again_changes_nothing(run: Run) -> None:
    assert run.changed_again == []
    # What needed a person still does, and nothing new turns up.
    assert set(run.again.open_codes) == set(run.first.open_codes)


def test_crlf_in_crlf_out(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "crlf"
    shutil.copytree(run.case.before, folder)
    for path in laws.python_files(folder):
        path.write_bytes(laws.as_crlf(path.read_bytes()))
    tool.rewrite_in_place(folder, run.case.options)
    assert laws.contents(folder) == {
        name: laws.as_crlf(content) if name.endswith(".py") else content
        for name, content in laws.contents(run.folder).items()
    }


def test_no_comment_is_lost(run: Run) -> None:
    # The comments of a dropped branch go with it.
    if not {"--unsafe-fixes", "--drop-fsdp1"} & set(run.case.options):
        assert laws.lost_comments(run.case.before, run.folder) == []


def test_every_fsdp1_name_left_over_has_a_finding(run: Run) -> None:
    assert laws.silent_leftovers(run.folder, run.again.found_at) == []
