"""Conversions without a mistake pass without a warning; `benchmarks/parity_suite.py` repeats them."""

from __future__ import annotations

import pytest
from bench import Benches
from parity_zoo import RIGHT, Right


def test_suite_is_as_large_as_it_claims() -> None:
    assert len(set(RIGHT)) == len(RIGHT) >= 35
    assert {one.ranks for one in RIGHT} == {1, 2, 3, 4, 8}


@pytest.mark.parametrize("right", RIGHT, ids=lambda one: f"{one.ranks} {one.options}".strip())
def test_right_conversion_passes(zoo: Benches, right: Right) -> None:
    report = zoo.verdict(right.options, right.ranks)
    assert report.passed, (report.first, report.causes)
    assert not report.warnings
    assert report.steps == 3
    assert (report.original.kind, report.candidate.kind) == ("FSDP1", "FSDP2")
    if right.exact:
        assert report.largest == ()
    assert all(one.relative <= one.limit for one in report.largest)
