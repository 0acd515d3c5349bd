"""The reports of many projects, the case folders of the rules, in every form that has a shape to hold to."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

import jsonschema
import pytest
from reporting import ROOT
from sarif_schema import check_sarif, official

from codemods.model import Options
from codemods.plan import plan_rewrite
from codemods.sources import find_files
from fsdp_migrate.reports.formats import ReportFormat
from fsdp_migrate.reports.rewrite import RewriteReport, build_report, render

SCHEMA = jsonschema.Draft202012Validator(
    json.loads((ROOT / "docs" / "rewrite-report.schema.json").read_text())
)
CASES = sorted((ROOT / "tests" / "codemods" / "cases").glob("*/*/*/before"))


def report(folder: Path, number: int) -> RewriteReport:
    """The report of one project; options, files named and whether it is written go in turn."""
    files = find_files(folder, [folder])
    options = Options(
        unsafe_fixes=number % 2 == 0,
        whole_only=number % 3 == 0,
        ignore=("FM5",) if number % 5 == 0 else (),
        target_torch=((2, 4), (2, 6), (2, 7))[number % 3],
    )
    only = frozenset(files[:1]) if number % 4 == 0 else None
    done = plan_rewrite(folder, files, options, only=only)
    return build_report(done, folder, written=number % 2 == 0, prefix="deep/" if number % 2 else "")


@pytest.mark.parametrize("part", range(4))
def test_reports_of_the_cases_hold_to_their_schemas(part: int, tmp_path: Path) -> None:
    seen: set[str] = set()
    for number, case in list(enumerate(CASES))[part::8]:
        # Away from this repository: a rewrite looks for helpers in what is around it.
        folder = Path(shutil.copytree(case, tmp_path / str(number)))
        made = report(folder, number)
        whole = json.loads(render(made, ReportFormat.JSON))
        SCHEMA.validate(whole)
        log = json.loads(render(made, ReportFormat.SARIF))
        check_sarif(log)
        (run,) = log["runs"]
        assert len(run["results"]) == len(whole["findings"])
        lines = {(f["path"], f["line"], f["code"]) for f in whole["findings"]}
        for found in (f for s in whole["suppressions"] for f in s["findings"]):
            assert any((code, line) == (found["code"], found["line"]) for _, line, code in lines)
        page = render(made, ReportFormat.HTML)
        assert page.count('<li class="finding ') == len(whole["findings"])
        markdown = render(made, ReportFormat.MD)
        for block in re.findall(r"(?:^\|.*\n)+", markdown, re.MULTILINE):
            assert len({len(re.findall(r"(?<!\\)\|", row)) for row in block.splitlines()}) == 1, block
        told = "Line numbers are those before the rewrite."
        is_due = made.written and bool(made.rewrite.changes) and bool(whole["findings"])
        for text in (page, markdown, render(made, ReportFormat.TEXT)):
            assert text.count(told) == int(is_due)
        seen |= {f["outcome"] for f in whole["findings"]}
    assert {"todo", "note", "done"} <= seen


def test_the_standard_s_own_schema_is_there_where_the_test_extra_has_it() -> None:
    found = official()
    assert (found is not None) is (sys.version_info >= (3, 11)), "install the test extra"
    assert found is None or found["title"].endswith("(SARIF) Version 2.1.0 JSON Schema")
