"""Every mistake of the zoo is found within three steps, with its cause in words; see `parity_zoo.py`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from bench import Benches
from parity_zoo import MUTATIONS, RIGHT, Mutation, found

ROOT = Path(__file__).parents[2]


def test_suite_is_as_large_as_it_claims() -> None:
    assert len({(one.mistake, one.options) for one in MUTATIONS}) == len(MUTATIONS) >= 75
    assert sum(one.found == "fails" for one in MUTATIONS) >= 50


@pytest.mark.parametrize("page", ["README.md", "CHANGELOG.md"])
def test_pages_say_how_large_the_suites_are(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert re.findall(r"(\d+) planted mistakes", text) == [str(len(MUTATIONS))]
    assert set(re.findall(r"(\d+) right conversions", text)) <= {str(len(RIGHT))}


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda one: f"{one.mistake} {one.options}".strip())
def test_planted_mistake_is_found_and_its_cause_is_named(zoo: Benches, mutation: Mutation) -> None:
    result = found(zoo, mutation)
    assert result.how == mutation.found, result.words
    assert result.code == mutation.code, result.words
    assert mutation.words in result.words
    assert result.remedy
