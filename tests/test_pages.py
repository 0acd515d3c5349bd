"""Numbers that pages give are those of what they count."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_readme_counts_the_corpus() -> None:
    corpus = json.loads((ROOT / "benchmarks" / "corpus.json").read_text(encoding="utf-8"))
    said = re.findall(r"checkouts of (\d+) public repositories", (ROOT / "README.md").read_text("utf-8"))
    assert said == [str(len(corpus))]


@pytest.mark.parametrize("repository", [None, "benchmark"], ids=["all", "without benchmark"])
def test_false_alarms_add_up(repository: str | None) -> None:
    """Each row is the sum of its codes, and the head of the page that of the rows."""
    page = (ROOT / "benchmarks" / "false_alarms.md").read_text(encoding="utf-8")
    judged = wrong = 0
    for line in re.findall(r"^\| (.*\d \|.*) \|$", page, re.MULTILINE):
        name, _, of_these, _, false, codes = (cell.strip() for cell in line.split("|"))
        assert sum(map(int, re.findall(r"FM\d+:(\d+)", codes))) == int(of_these), name
        assert sum(map(int, re.findall(r"\((\d+) false\)", codes))) == int(false), name
        if name != repository:
            judged, wrong = judged + int(of_these), wrong + int(false)
    share = f"{100 * wrong / judged:.1f} %"
    said = f"{wrong} of {judged} ({share})" if repository else f"Judged: {judged}. Wrong: {wrong} ({share})"
    assert said in page
