"""Loss curves: what counts as the same run."""

import math
from pathlib import Path

import pytest

from fsdp_migrate.demo.losses import LossCurve, compare
from fsdp_migrate.errors import JobError

REFERENCE = LossCurve({11: 3.0, 12: 2.5}, {12: 2.75})


def test_curve_keeps_every_digit_of_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text(
        '{"step": 10, "loss": 3.129228353500366, "grad_norm": 1.5}\n'
        '{"step": 11, "loss": 3.067312240600586, "grad_norm": 1.4, "val_loss": 3.0834364891052246}\n'
    )
    curve = LossCurve.read(log)
    assert curve == LossCurve({10: 3.129228353500366, 11: 3.067312240600586}, {11: 3.0834364891052246})
    assert curve.after(10) == LossCurve({11: 3.067312240600586}, {11: 3.0834364891052246})


def test_missing_log_says_that_the_job_did_not_train(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="without training"):
        LossCurve.read(tmp_path / "log.jsonl")


def test_equal_curves_hold_without_any_tolerance() -> None:
    found = compare(REFERENCE, REFERENCE, limit=0.0)
    assert found.holds
    assert str(found) == "3 losses equal to the last bit"


@pytest.mark.parametrize(
    "resumed",
    [
        LossCurve({11: 3.0, 12: math.nextafter(2.5, 3)}, {12: 2.75}),
        LossCurve({11: 3.0, 12: 2.5}, {12: math.nextafter(2.75, 3)}),
        LossCurve({11: 3.0}, {12: 2.75}),
        LossCurve({11: 3.0, 12: 2.5}, {}),
        LossCurve({11: math.nan, 12: 2.5}, {12: 2.75}),
    ],
    ids=["last bit", "last bit of validation", "step missing", "validation missing", "nan"],
)
def test_any_difference_is_one_where_none_is_allowed(resumed: LossCurve) -> None:
    assert not compare(REFERENCE, resumed, limit=0.0).holds


def test_rounding_is_measured_against_its_limit() -> None:
    resumed = LossCurve({11: 3.0, 12: 2.5 + 2.5e-6}, {12: 2.75})
    found = compare(REFERENCE, resumed, limit=1e-5)
    assert found.holds
    assert found.equal == 2
    assert found.largest_relative == pytest.approx(1e-6)
    assert not compare(REFERENCE, resumed, limit=1e-7).holds
    assert not compare(REFERENCE, LossCurve({11: 3.0}, {12: 2.75}), limit=1e-5).holds


def test_nothing_compared_is_not_agreement() -> None:
    assert not compare(LossCurve({}, {}), REFERENCE, limit=1.0).holds
