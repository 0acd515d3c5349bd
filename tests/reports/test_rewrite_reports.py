"""Every form of the report says the same things; JSON and SARIF hold to their schemas."""

from __future__ import annotations

import json
import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from reporting import FILES, ROOT, TRAIN, Told, program, write
from sarif_schema import check_sarif

SCHEMA = json.loads((ROOT / "docs" / "rewrite-report.schema.json").read_text())
LINES = TRAIN.splitlines()


def findings(reports: dict[str, Told]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(reports["json"].out)["findings"]
    return found


def test_check_leaves_with_1_and_writes_nothing(reports: dict[str, Told], repository: Path) -> None:
    assert {form: told.code for form, told in reports.items()} == dict.fromkeys(reports, 1)
    assert {
        path.relative_to(repository).as_posix(): path.read_text() for path in repository.rglob("*.py")
    } == FILES
    assert not list(repository.rglob(".fsdp-migrate"))


def test_json_holds_to_its_schema(reports: dict[str, Told]) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(json.loads(reports["json"].out), SCHEMA, jsonschema.Draft202012Validator)


@pytest.mark.parametrize("options", [["--check"], []], ids=["check", "written"])
def test_json_of_the_demo_project_holds_to_the_schema(options: list[str], tmp_path: Path) -> None:
    demo = ROOT / "fsdp_migrate" / "demo" / "project"
    write(tmp_path / "p", {path.name: path.read_text() for path in demo.glob("*.py")})
    told = program("rewrite", "--format", "json", *options, "p", cwd=tmp_path)
    report = json.loads(told.out)
    jsonschema.validate(report, SCHEMA, jsonschema.Draft202012Validator)
    assert report["written"] is (options == [])
    assert report["summary"]["wrap_sites"] == 1
    # Lines are those of the files before, also when they have been rewritten since.
    before = {path.name: path.read_text().splitlines() for path in demo.glob("*.py")}
    for finding in report["findings"]:
        for line in finding["lines"]:
            assert before[finding["path"]][line["number"] - 1] == line["text"]


def test_findings_have_their_outcome_lines_and_reason(reports: dict[str, Told]) -> None:
    by_line = {(f["path"], f["line"], f["code"]): f for f in findings(reports)}
    clip = by_line["train.py", 11, "FM301"]
    assert clip["outcome"] == "done"
    assert [line["text"] for line in clip["lines"]] == LINES[10:13]
    assert (clip["end_line"], clip["end_column"]) == (13, 10)
    handle = by_line["train.py", 15, "FM507"]
    assert (handle["outcome"], handle["column"]) == ("todo", 11)
    assert handle["remedy"]
    ignored = by_line["train.py", 16, "FM507"]
    assert ignored["outcome"] == "ignored"
    assert ignored["detail"] == "<i>only printed</i> | until May"
    assert by_line["train.py", 17, "FM904"]["outcome"] == "todo"
    assert by_line["plain.py", 3, "FM905"]["outcome"] == "note"
    broken = by_line["broken.py", 1, "FM901"]
    assert broken["outcome"] == "todo"
    assert "cannot be parsed" in broken["message"]
    assert broken["lines"] == []


def test_summary_counts_what_is_listed(reports: dict[str, Told]) -> None:
    report = json.loads(reports["json"].out)
    summary = report["summary"]
    for outcome, number in summary["findings"].items():
        assert number == sum(f["outcome"] == outcome for f in report["findings"])
    assert sum(n for codes in summary["codes"].values() for n in codes.values()) == len(report["findings"])
    assert (report["searched"], report["read"]) == (3, 2)
    assert summary["findings"]["ignored"] == 2


def test_json_lists_every_suppression(reports: dict[str, Told]) -> None:
    found = json.loads(reports["json"].out)["suppressions"]
    assert [(s["path"], s["line"], s["codes"], s["state"]) for s in found] == [
        ("plain.py", 3, ["FM301"], "unused"),
        ("train.py", 16, ["FM507"], "used"),
        ("train.py", 17, ["FM507"], "used"),
    ]
    assert [s["reason"] for s in found] == ["copied from elsewhere", "<i>only printed</i> | until May", ""]
    assert found[1]["findings"] == [{"code": "FM507", "line": 16}]
    assert LINES[15][found[1]["column"] - 1 :].startswith("# fsdp-migrate: ignore[FM507]")


def test_sarif_holds_to_the_schema(reports: dict[str, Told]) -> None:
    check_sarif(json.loads(reports["sarif"].out))


def test_sarif_says_what_json_says(reports: dict[str, Told]) -> None:
    (run,) = json.loads(reports["sarif"].out)["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == sorted({f["code"] for f in findings(reports)})
    assert len(run["results"]) == len(findings(reports))
    for result, finding in zip(run["results"], findings(reports), strict=True):
        assert result["ruleId"] == finding["code"] == rules[result["ruleIndex"]]["id"]
        assert result["level"] == {"todo": "warning", "ignored": "warning"}.get(finding["outcome"], "note")
        assert ("suppressions" in result) == (finding["outcome"] == "ignored")
        physical = result["locations"][0]["physicalLocation"]
        # Relative to the repository, not to the directory that was rewritten: code scanning wants it so.
        assert physical["artifactLocation"]["uri"] == f"pkg/{finding['path']}"
        if finding["lines"]:
            assert physical["region"]["startLine"] == finding["line"]
            assert physical["region"]["endColumn"] == finding["end_column"]


def test_sarif_fingerprints_are_distinct_and_survive_moved_lines(tmp_path: Path, repository: Path) -> None:
    def prints(text: str, name: str) -> list[str]:
        folder = write(tmp_path / name, {"train.py": text})
        told = program("rewrite", "--check", "--format", "sarif", ".", cwd=folder)
        (run,) = json.loads(told.out)["runs"]
        return sorted(r["partialFingerprints"]["fsdpMigrateFinding/v1"] for r in run["results"])

    here, moved = prints(TRAIN, "here"), prints("# one line more\n\n" + TRAIN, "moved")
    assert len(set(here)) == len(here)
    assert here == moved


class _Page(HTMLParser):
    """Collects what a page refers to, its findings and the texts of both halves of its diffs."""

    VOID = frozenset({"meta", "input", "col", "br", "link", "img"})
    # Elements whose end tag HTML lets one leave out.
    IMPLIED = frozenset({"tr", "th", "td", "p", "li"})

    def __init__(self) -> None:
        super().__init__()
        self.references: list[str] = []
        self.codes: list[str] = []
        self.open: list[str] = []
        self.texts: dict[str, list[str]] = {"old": [], "new": []}
        self._half = ""
        self.italic = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = dict(attrs)
        self.references += [v for k, v in told.items() if k in ("src", "href") and v]
        if "finding" in (told.get("class") or "").split():
            self.codes.append(told["data-code"] or "")
        if tag == "td":
            self._half = (told.get("class") or "").split()[0] if told.get("class") else ""
            if self._half in self.texts and "none" not in (told["class"] or ""):
                self.texts[self._half].append("")
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag == "td":
            self._half = ""
        while self.open and self.open[-1] != tag and self.open[-1] in self.IMPLIED:
            self.open.pop()
        assert self.open and self.open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data: str) -> None:
        if self._half in self.texts and self.texts[self._half] and self.open[-1] in ("td", "del", "ins"):
            self.texts[self._half][-1] += data


def page(reports: dict[str, Told]) -> _Page:
    parser = _Page()
    parser.feed(reports["html"].out)
    parser.close()
    return parser


def test_html_is_one_page_that_needs_nothing_else(reports: dict[str, Told]) -> None:
    found = page(reports)
    assert found.open == []
    assert all(reference.startswith("#") for reference in found.references)
    text = reports["html"].out
    assert not re.search(r"https?://|@import|url\(|fetch\(|XMLHttpRequest|import\(", text)
    assert "default-src 'none'" in text


def test_html_escapes_what_comes_from_files(reports: dict[str, Told]) -> None:
    text = reports["html"].out
    assert "<i>only printed</i>" not in text
    assert "&lt;i&gt;only printed&lt;/i&gt; | until May" in text
    assert "<b>models</b>" not in text


def test_html_has_every_finding_and_a_box_for_every_code(reports: dict[str, Told]) -> None:
    codes = sorted(f["code"] for f in findings(reports))
    assert sorted(page(reports).codes) == codes
    boxes = re.findall(r"name=code value=(FM\d{3}) checked", reports["html"].out)
    assert boxes == sorted(set(codes))


def test_html_shows_both_sides_of_a_change(reports: dict[str, Told]) -> None:
    texts = page(reports).texts
    assert LINES[6] in texts["old"]
    assert LINES[6] not in texts["new"]
    assert any("fully_shard(model" in line for line in texts["new"])
    assert "            1.0,  # größer als üblich: 1 < 2" in texts["old"]


def test_text_has_summary_first_then_findings_by_file(reports: dict[str, Told]) -> None:
    text = reports["text"].out
    assert text.startswith("Summary\n  Searched 3 Python files, read 2 of them")
    assert "1 of 1 wrap call translated" in text
    order = [text.index(f"\n{name}\n") for name in ("broken.py", "plain.py", "train.py")]
    assert order == sorted(order)
    assert "  train.py:15:11: FM507 [left to you] " in text
    assert "      15 |     print(model._handle)" in text
    assert "FM301 [translated]" not in text  # -v shows them
    assert "not shown here; -v shows them" in text


def test_verbose_text_shows_what_was_translated(repository: Path) -> None:
    told = program("-v", "rewrite", "--check", "pkg", cwd=repository)
    assert "train.py:11:9: FM301 [translated]" in told.out


def test_markdown_has_findings_by_file_with_their_lines(reports: dict[str, Told]) -> None:
    text = reports["md"].out
    assert text.startswith("# FSDP1 to FSDP2\n\n## Summary\n")
    assert "| FM507 |" in text
    assert "### `train.py`" in text
    assert "- **FM507**, line 15, left to you: " in text
    assert "  ```python\n      print(model._handle)\n  ```" in text
    outside = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    assert "<i>" not in outside.replace("\\<i\\>", "")
    assert "Why: \\<i\\>only printed\\</i\\>" in outside
    # Tables stay tables: every row of one has as many cells as its head.
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        cells = {len(re.findall(r"(?<!\\)\|", row)) for row in block.splitlines()}
        assert len(cells) == 1, block


def test_output_goes_to_a_file_and_the_outcome_to_stderr(repository: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.sarif"
    told = program("rewrite", "--check", "--format", "sarif", "--output", str(report), "pkg", cwd=repository)
    assert told.out == ""
    assert "Would change" in told.err
    assert json.loads(report.read_text())["version"] == "2.1.0"


def test_output_that_cannot_be_written_is_bad_usage(repository: Path, tmp_path: Path) -> None:
    told = program("rewrite", "--check", "--output", str(tmp_path / "no" / "r.txt"), "pkg", cwd=repository)
    assert told.code == 2
    assert "cannot be written: No such file or directory" in told.err
    assert "Traceback" not in told.err


def test_diff_on_stdout_is_alone_and_applies(repository: Path, tmp_path: Path) -> None:
    told = program("rewrite", "--diff", "pkg/train.py", cwd=repository)
    assert told.out.startswith("diff --git ")
    assert "Summary" in told.err
    patched = write(tmp_path / "again", FILES)
    done = subprocess.run(
        ["git", "apply", "--unsafe-paths", "-p1"],
        input=told.out,
        cwd=patched,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "fully_shard(model" in (patched / "pkg" / "train.py").read_text()


def test_nothing_found_says_what_was_searched(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": "x = 1\n", "b.py": "import a\n"})
    for form in ("text", "md", "html"):
        told = program("rewrite", "--check", "--format", form, ".", cwd=tmp_path)
        assert told.code == 0
        assert "Searched 2 Python files, read 0 of them" in told.out
        assert "No FSDP1 code was found in them." in told.out
