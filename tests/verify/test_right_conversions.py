"""Conversions without a mistake pass without a warning; `benchmarks/parity_suite.py` repeats them."""

from __future__ import annotations

import pytest
from bench import Benches
from parity_zoo import RIGHT, Right

from fsdp_migrate.verify.model import Outcome


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


def test_no_sharding_may_become_distributed_data_parallel(zoo: Benches) -> None:
    report = zoo.verdict("--strategy NO_SHARD --accumulate 2 --clip 0.3", 2, "by-ddp")
    assert report.passed, (report.first, report.causes)
    assert report.candidate.kind == "DDP"
    reductions = next(one for one in report.checks if one.title == "Gradient reductions per step")
    assert reductions.outcome is Outcome.NOT_OBSERVED
