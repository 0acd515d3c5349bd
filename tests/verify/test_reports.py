"""The forms of a verdict: schema, eighty columns, and a page that was looked at in a browser."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from bench import Bench, Benches

from fsdp_migrate.reports import parity
from fsdp_migrate.verify.model import ArmName, ParityReport

sys.path.insert(0, str(Path(__file__).parents[1] / "reports"))

from browser import Browser, browser, installed

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "verify-report.schema.json").read_text())


@pytest.fixture(scope="module")
def failing(zoo: Benches) -> ParityReport:
    return zoo.verdict("", 2, mistake="other-seed")


@pytest.fixture(scope="module")
def passing(zoo: Benches) -> ParityReport:
    return zoo.verdict("--clip 0.3", 2)


@pytest.fixture(scope="module")
def page() -> Iterator[Browser]:
    program = installed()
    assert program is not None, "no chromium or chrome on PATH"
    with browser(program) as made:
        yield made


def test_json_is_what_its_schema_says(failing: ParityReport, passing: ParityReport) -> None:
    odd = replace(failing, curves=(("loss", (float("nan"), float("inf"), 0.5)),))
    for report in (failing, passing, odd):
        found = json.loads(parity.render(report, "json"))
        jsonschema.Draft202012Validator(SCHEMA).validate(found)
    assert json.loads(parity.render(odd, "json"))["curves"] == [["loss", ["nan", "inf", 0.5]]]
    for broken in ({"version": 2}, {"passed": "yes"}, {"surprise": 1}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.Draft202012Validator(SCHEMA).validate(found | broken)


def test_schema_knows_every_arm() -> None:
    lists: list[list[str]] = []

    def collect(node: object) -> None:
        if isinstance(node, dict):
            lists.extend([node["enum"]] if "candidate" in node.get("enum", ()) else [])
        for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
            collect(child)

    collect(SCHEMA)
    assert len(lists) == 3
    again = {ArmName.NOISE.value, ArmName.UNSHARDED.value}  # which have no timeline
    assert all(set(each) | again == {arm.value for arm in ArmName} for each in lists)


@pytest.mark.parametrize("name", ["failing", "passing"])
def test_text_keeps_to_eighty_columns(name: str, request: pytest.FixtureRequest) -> None:
    lines = parity.render(request.getfixturevalue(name), "text").splitlines()
    assert max(len(line.rstrip()) for line in lines) <= 80
    # No word is cut: a parameter's name in two pieces names nothing.
    names = {one.name for one in request.getfixturevalue(name).largest if not one.name.startswith("rank")}
    assert all(any(name in line for line in lines) for name in names)


def test_page_needs_nothing_else_and_shows_what_it_should(
    failing: ParityReport, page: Browser, tmp_path: Path
) -> None:
    text = parity.render(failing, "html")
    assert "http" not in text.replace("http-equiv", "")
    assert "<script" not in text and "url(" not in text
    file = tmp_path / "report.html"
    file.write_text(text)
    page.width(1000)
    page.open(file)
    assert page.run("document.querySelector('h1').innerText").startswith("FAIL parity does not hold")
    assert page.run("document.querySelectorAll('.why').length") == 1 + len(failing.causes)
    losses = page.run("document.querySelectorAll('figure')[0].querySelectorAll('polyline').length")
    assert losses == 2
    # One row per parameter that differs, one cell per step from 0; only the head differs at the start.
    assert page.run("document.querySelectorAll('.heat rect').length") == 14 * 4
    filled = "[...document.querySelectorAll('.heat rect')].filter(r => r.getAttribute('fill-opacity') > 0)"
    steps = page.run(
        f"{filled}.map(r => r.querySelector('title').textContent).filter(t => t.includes('step 0'))"
    )
    assert len(steps) == 1 and steps[0].startswith("head.weight, step 0: ")
    assert page.run("document.querySelectorAll('td.bad').length") == 5


@pytest.mark.parametrize("width", [390, 1000])
def test_timeline_is_read_without_colour_and_on_a_phone(
    failing: ParityReport, page: Browser, tmp_path: Path, width: int
) -> None:
    """Lanes are named, each with its time, no two of them lie on one another, both arms have one scale."""
    file = tmp_path / "report.html"
    file.write_text(parity.render(failing, "html"))
    page.width(width)
    page.open(file)
    figures = "[...document.querySelectorAll('figure.timeline')]"
    assert page.run(f"{figures}.map(f => f.querySelector('figcaption').innerText.split(':')[0])") == [
        "original",
        "candidate",
    ]
    kinds = ["forward", "backward", "optimizer", "communication"]
    lanes = page.run(
        f"{figures}.map(f => [...f.querySelectorAll('.lane')].map(l => [...l.querySelectorAll('text')]"
        ".map(t => t.textContent)))"
    )
    for of_arm in lanes:
        words = [one.split() for [one] in of_arm]
        assert [name for name, *_ in words] == kinds
        assert all(float(total.replace(",", "")) > 0 and unit == "ms" for _, total, unit in words)
    boxes = page.run(
        f"{figures}.map(f => [...f.querySelectorAll('.lane')].map(l => {{"
        "const r = [...l.querySelectorAll('rect')].map(x => x.getBoundingClientRect());"
        "return [Math.min(...r.map(x => x.top)), Math.max(...r.map(x => x.bottom)),"
        "Math.min(...r.map(x => x.width))] }))"
    )
    for of_arm in boxes:
        for above, below in itertools.pairwise(of_arm):
            assert above[1] < below[0]
        assert all(narrowest > 0 for *_, narrowest in of_arm)
    axes = page.run(f"{figures}.map(f => [...f.querySelectorAll('svg > text')].map(t => t.textContent))")
    assert axes[0] == axes[1] and axes[0][0] == "0 ms"
    assert page.run("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", [390, 1000])
def test_page_never_scrolls_sideways(
    failing: ParityReport, page: Browser, tmp_path: Path, width: int
) -> None:
    """Wide tables and charts scroll in their own boxes."""
    file = tmp_path / "report.html"
    file.write_text(parity.render(replace(failing, subject="a_very_long_name_" * 12 + ".py"), "html"))
    page.width(width)
    page.open(file)
    assert page.run("document.documentElement.scrollWidth") <= width
    heights = page.run(
        "[...document.querySelectorAll('svg text')].map(t => t.getBoundingClientRect().height)"
    )
    assert min(heights) >= 7


def test_curves_of_both_arms_are_told_apart_without_colour(failing: ParityReport) -> None:
    text = parity.render(failing, "html")
    assert 'stroke-dasharray="none"' in text and 'stroke-dasharray="7 4"' in text


def test_page_escapes_what_it_shows(passing: ParityReport) -> None:
    hostile = replace(
        passing, subject="<b>&x", notices=("<script>alert(1)</script>",), heat=(("<i>", (0.5, 1.0)),)
    )
    text = parity.render(hostile, "html")
    assert "<script>" not in text and "<b>&x" not in text and "<i>" not in text
    assert "&lt;script&gt;" in text


def test_page_of_equal_arms_says_so(two_ranks: Bench) -> None:
    text = parity.render(two_ranks.verdict(), "html")
    assert "Nothing differs, not even in the last bit." in text
    assert "14 of 14 parameters are equal to the last bit in every step." in text
