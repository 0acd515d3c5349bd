"""Every mistake of the zoo is found within three steps, with its cause in words; see `parity_zoo.py`."""

from __future__ import annotations

import pytest
from bench import Benches
from parity_zoo import MUTATIONS, Mutation, found


def test_suite_is_as_large_as_it_claims() -> None:
    assert len({(one.mistake, one.options) for one in MUTATIONS}) == len(MUTATIONS) >= 75
    assert sum(one.found == "fails" for one in MUTATIONS) >= 50


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda one: f"{one.mistake} {one.options}".strip())
def test_planted_mistake_is_found_and_its_cause_is_named(zoo: Benches, mutation: Mutation) -> None:
    result = found(zoo, mutation)
    assert result.how == mutation.found, result.words
    assert result.code == mutation.code, result.words
    assert mutation.words in result.words
    assert result.remedy
