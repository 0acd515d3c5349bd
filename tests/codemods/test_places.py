"""Every report of every case speaks of the files as they are on the disk, whatever text the rules saw.

Notebooks are one module to the rules, and `--drop-fsdp1` shows them a text with FSDP1's branches gone: both
are led back in one place, `codemods.shown_places`.
"""

from __future__ import annotations

import html
import json
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tool
from case import Case, all_cases

from codemods.model import Finding, Outcome, Rewrite
from codemods.plan import plan_rewrite
from codemods.sources import find_files
from codemods.torch_names import FSDP2_NAMES
from fsdp_migrate.reports.formats import ReportFormat
from fsdp_migrate.reports.rewrite import RewriteReport, build_report, render
from fsdp_migrate.reports.visible import LONGEST, visible

CASES = all_cases()
_LINE_END = re.compile(r"\r\n|\r|\n")
_LEFT_OUT = re.compile(r" \[\.\.\. [\d,]+ characters \.\.\.\] ")
_ELSEWHERE = re.compile("is given the model inside the context|decides which kind of state dict")
"""Of messages that begin with a name that stands elsewhere."""
_NAMED = re.compile(r"`\.?([A-Za-z_][\w.]*)")

Told = tuple[str, int, str, tuple[str, ...]]
"""Path, line, code and the lines shown of one finding."""


def planned(case: Case, folder: Path, *options: str) -> Rewrite:
    return plan_rewrite(
        folder, find_files(folder, [folder]), tool.options_of(list(dict.fromkeys([*case.options, *options])))
    )


class Copies:
    """The inputs of cases, away from this repository: a rewrite looks for helpers in what is around it."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._planned: dict[str, Rewrite] = {}

    def of(self, case: Case) -> Path:
        folder = self._scratch / case.id
        if not folder.exists():
            shutil.copytree(case.before, folder)
        return folder

    def rewrite(self, case: Case) -> Rewrite:
        """What the rewriter would do with the case's own options; planned once."""
        if case.id not in self._planned:
            self._planned[case.id] = planned(case, self.of(case))
        return self._planned[case.id]


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Copies:
    return Copies(tmp_path_factory.mktemp("cases"))


def report_of(rewrite: Rewrite, folder: Path) -> RewriteReport:
    return build_report(rewrite, folder, written=False)


def findings(report: RewriteReport) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(render(report, ReportFormat.JSON))["findings"]
    return found


def lines_of(folder: Path, path: str) -> list[str]:
    return _LINE_END.split((folder / path).read_bytes().decode("utf-8-sig", "replace"))


def check_places(told: list[dict[str, Any]], folder: Path) -> None:
    """Line, column, end and shown lines of every finding are those of the file on the disk."""
    for found in told:
        where = f"{found['path']}:{found['line']} {found['code']} {found['message']}"
        if not found["lines"]:  # about a file as a whole
            assert (found["line"], found["column"]) == (1, 1), where
            assert (found["end_line"], found["end_column"]) == (1, 1), where
            continue
        lines = lines_of(folder, found["path"])
        assert 1 <= found["line"] <= found["end_line"] <= len(lines), where
        assert (found["end_line"], found["end_column"]) > (found["line"], found["column"]), where
        assert 1 <= found["column"] <= len(lines[found["line"] - 1]), where
        assert found["end_column"] <= len(lines[found["end_line"] - 1]) + 1, where
        assert found["lines"][0]["number"] == found["line"], where
        assert found["lines"][-1]["number"] + found["lines_omitted"] == found["end_line"], where
        for line in found["lines"]:
            pieces = _LEFT_OUT.split(line["text"])
            whole = lines[line["number"] - 1]
            assert line["text"] == whole if len(whole) <= LONGEST else sum(map(len, pieces)) == LONGEST, where
            assert any(whole.find(piece) >= 0 for piece in pieces if piece) or not whole, where


def check_names(told: list[dict[str, Any]], folder: Path) -> None:
    """What a finding names stands in its lines, by that name or the one it was imported as."""
    text = "".join(path.read_text(errors="replace") for path in folder.rglob("*.py"))
    for found in told:
        if not found["lines"] or found["path"].endswith((".yaml", ".json", ".toml", ".sh")):
            continue
        shown = " ".join(line["text"] for line in found["lines"])
        named = _NAMED.match(found["message"])
        last = named.group(1).rstrip(".").rpartition(".")[2] if named else ""
        if last in {"", *FSDP2_NAMES} or last not in text or _ELSEWHERE.search(found["message"]):
            continue
        also = re.findall(rf"\b{last} as (\w+)", text)
        assert any(re.search(rf"\b{name}\b", shown) for name in (last, *also)), (found["message"], shown)


def in_text(page: str) -> Iterator[Told]:
    for entry in re.finditer(
        r"^  (\S.*?):(\d+):\d+: (FM\d+) .*\n((?:(?! {0,2}\S).*\n)*)", page, re.MULTILINE
    ):
        shown = re.findall(r"^ +\d+ \|(?: (.*))?$", entry.group(4), re.MULTILINE)
        yield entry.group(1), int(entry.group(2)), entry.group(3), tuple(shown)


def in_markdown(page: str) -> Iterator[Told]:
    for section in re.split(r"^### ", page, flags=re.MULTILINE)[1:]:
        path = section.splitlines()[0].strip("`")
        for entry in re.split(r"^- (?=\*\*FM)", section, flags=re.MULTILINE)[1:]:
            head = re.match(r"\*\*(FM\d+)\*\*, (?:line (\d+)|the file)", entry)
            assert head is not None, entry
            code = re.search(r"^  (`{3,})python\n(.*?)^  \1$", entry, re.MULTILINE | re.DOTALL)
            shown = [line[2:] for line in code.group(2).splitlines()] if code else []
            if shown and re.fullmatch(r"# \.\.\. \d+ more lines?", shown[-1]):
                shown.pop()
            yield path, int(head.group(2) or 1), head.group(1), tuple(shown)


def in_html(page: str) -> Iterator[Told]:
    for section in re.split(r"<section class=file ", page)[1:]:
        path = re.search(r'data-path="([^"]*)"', section)
        assert path is not None
        for code, entry in re.findall(
            r'<li class="finding \w+" data-code=(FM\d+)(.*?)</li>', section, re.DOTALL
        ):
            numbers = [int(n) for n in re.findall(r"<span class=n>(\d+)</span>", entry)]
            shown = re.findall(r"<span class=n>\d+</span>(.*)\n", entry)
            line = re.search(r"\bline (\d+)", entry)
            first = int(line.group(1)) if numbers and line else 1
            assert numbers[:1] in ([], [first])
            yield html.unescape(path.group(1)), first, code, tuple(map(html.unescape, shown))


def in_sarif(page: str) -> Iterator[Told]:
    for result in json.loads(page)["runs"][0]["results"]:
        place = result["locations"][0]["physicalLocation"]
        region = place.get("region", {"startLine": 1, "startColumn": 1, "endLine": 1, "endColumn": 2})
        start, end = (region["startLine"], region["startColumn"]), (region["endLine"], region["endColumn"])
        assert end > start
        snippet = region.get("snippet", {}).get("text")
        shown = tuple(snippet.split("\n")) if snippet is not None else ()
        yield place["artifactLocation"]["uri"], region["startLine"], result["ruleId"], shown


READERS = {
    ReportFormat.TEXT: in_text,
    ReportFormat.MD: in_markdown,
    ReportFormat.HTML: in_html,
    ReportFormat.SARIF: in_sarif,
}


def check_forms(report: RewriteReport, found_in_json: list[dict[str, Any]]) -> None:
    """Every form names the places that JSON names, and shows the same lines."""

    def seen(told: Told, form: ReportFormat) -> Told:
        path, line, code, shown = told
        if form is ReportFormat.SARIF:
            return path, line, code, shown
        return path, line, code, tuple(visible(one).rstrip() for one in shown)

    told = [
        (f["path"], f["line"], f["code"], tuple(line["text"] for line in f["lines"])) for f in found_in_json
    ]
    for form, read in READERS.items():
        found = Counter(seen(one, form) for one in read(render(report, form)))
        assert found == Counter(seen(one, form) for one in told), form


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_reports_speak_of_the_files_as_they_are(case: Case, copies: Copies) -> None:
    folder, rewrite = copies.of(case), copies.rewrite(case)
    report = report_of(rewrite, folder)
    told = findings(report)
    assert len(told) == len(rewrite.reported)
    check_places(told, folder)
    check_names(told, folder)
    check_forms(report, told)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_dropping_branches_moves_no_finding(case: Case, copies: Copies) -> None:
    folder = copies.of(case)
    kept = [r.finding for r in copies.rewrite(case).reported]
    rewrite = planned(case, folder, "--drop-fsdp1")
    told = findings(report_of(rewrite, folder))
    check_places(told, folder)
    check_names(told, folder)
    before, after = _places(kept), _places([r.finding for r in rewrite.reported])
    for said, places in after.items():
        if said not in before:
            continue
        assert places & before[said], said
        # More of them than before: with the branch another finding is gone that spoke of the place.
        assert len(places) > len(before[said]) or places <= before[said], said


def _places(findings: list[Finding]) -> dict[tuple[str, str, str], set[tuple[int, int]]]:
    found: dict[tuple[str, str, str], set[tuple[int, int]]] = {}
    for one in findings:
        key = one.place.path, one.code, one.message
        found.setdefault(key, set()).add((one.place.line, one.place.column))
    return found


def as_notebook(text: str) -> str:
    """The file as a notebook of one cell after a cell of text, as Jupyter writes it."""
    cells = [
        {"cell_type": "markdown", "metadata": {}, "source": ["# Training\n", "with FSDP"]},
        {"cell_type": "code", "metadata": {}, "outputs": [], "source": text.splitlines(keepends=True)},
    ]
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1)


@pytest.mark.parametrize("layout", ["lines", "one line"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_notebooks_are_quoted_by_their_own_lines(case: Case, layout: str, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    shutil.copytree(case.before, folder)
    scripts = [path for path in folder.rglob("*.py") if path.stem == "train"]
    texts = {}
    for script in scripts:
        text = script.read_bytes().decode("utf-8", "replace").replace("\r\n", "\n")
        notebook = as_notebook(text)
        if layout == "one line":
            notebook = json.dumps(json.loads(notebook))
        path = script.with_suffix(".ipynb")
        path.write_text(notebook)
        script.unlink()
        texts[path.relative_to(folder).as_posix()] = text
    report = report_of(planned(case, folder), folder)
    told = findings(report)
    check_places(told, folder)
    if layout == "lines":
        check_forms(report, told)
    for found in told:
        cell = re.match(r"cell (\d+), line (\d+)", found["detail"])
        if found["path"] not in texts or not found["lines"]:
            continue
        assert cell is not None and cell.group(1) == "2", found
        if layout == "one line":
            assert found["line"] == found["end_line"] == 1
            continue
        (first, *_) = found["lines"]
        source = texts[found["path"]].splitlines(keepends=True)[int(cell.group(2)) - 1]
        assert json.loads(first["text"].strip().removesuffix(",")) == source


def test_long_lines_are_shown_around_what_is_meant(tmp_path: Path) -> None:
    code = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
    code += f"x = [{'0, ' * 900}FSDP.set_state_dict_type, {'1, ' * 900}]\n"
    (tmp_path / "a.py").write_text(code)
    rewrite = plan_rewrite(tmp_path, ["a.py"], tool.options_of([]))
    report = report_of(rewrite, tmp_path)
    told = findings(report)
    check_places(told, tmp_path)
    check_forms(report, told)
    shown = [line["text"] for f in told for line in f["lines"] if line["number"] == 2]
    assert shown and all("FSDP.set_state_dict_type" in text and len(text) < 2 * LONGEST for text in shown)
    assert [r.outcome for r in rewrite.reported].count(Outcome.TODO) >= 1


def test_numbers_of_lines_are_no_signs(tmp_path: Path) -> None:
    code = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
    (tmp_path / "a.py").write_text(code + "\n" * 98 + "FSDP.set_state_dict_type\n")
    report = report_of(plan_rewrite(tmp_path, ["a.py"], tool.options_of([])), tmp_path)
    assert "a.py:100:1: FM" in render(report, ReportFormat.TEXT)
    check_forms(report, findings(report))
