"""One model's output is another's input: rounding passes on from one to the other, and is no other data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from bench import Bench

from fsdp_migrate.verify.compare import Comparison
from fsdp_migrate.verify.model import Difference
from fsdp_migrate.verify.model_inputs import parted
from fsdp_migrate.verify.record import ArmRecord, StepFacts

TWO_MODELS = Path(__file__).parent / "projects" / "two_models"


@pytest.fixture(scope="module")
def made(two_ranks: Bench, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    run = replace(two_ranks.run, options=replace(two_ranks.run.options, steps=6))
    return Bench(run, tmp_path_factory.mktemp("two_models"), TWO_MODELS)


def test_right_conversion_of_two_models_passes(made: Bench) -> None:
    report = made.verdict()
    assert report.passed and not report.warnings, (report.causes, report.warnings)
    assert report.steps == 6 and report.largest != ()  # it does round otherwise
    assert all(one.relative < 1e-5 for one in report.largest)


@pytest.mark.parametrize(
    ("mistake", "code", "words"),
    [
        ("data", "different-data", "the model was given other inputs in step 5"),
        ("holds-more", "optimizer-holds-more", "6 parameters are in the candidate's AdamW"),
    ],
)
def test_mistake_between_two_models_is_named_alone(made: Bench, mistake: str, code: str, words: str) -> None:
    report = made.verdict(mistake=mistake)
    assert not report.passed
    assert [cause.code for cause in report.causes] == [code]
    assert words in report.causes[0].text


def arm(*inputs: str) -> ArmRecord:
    """A record of one rank that was given something else in each step."""
    steps = {
        number: [StepFacts(number, (1.0,), (1,), (), tuple(given.split()), (), {}, 0.0, 0.0)]
        for number, given in enumerate(inputs, 1)
    }
    return ArmRecord(ranks=1, steps=steps)


def apart(step: int, quantity: str, relative: float) -> Difference:
    return Difference(step, quantity, "w", relative, relative, 1e-5, 1.0, 1.0)


def test_where_inputs_part() -> None:
    left, right = arm("a", "b", "c"), arm("a", "B", "C")
    rounding = [apart(1, "weight", 1e-6), apart(2, "loss", 1e-6)]
    assert parted(left, left, Comparison()) is None
    found = parted(left, right, Comparison(rounding))
    assert found is not None and (found.step, found.by_rounding) == (2, True)
    found = parted(left, right, Comparison([*rounding, apart(3, "gradient", 1e-2)]))
    assert found is not None and (found.step, found.by_rounding) == (3, False)
    found = parted(left, right, Comparison())  # nothing before it differs: it is the data
    assert found is not None and (found.step, found.by_rounding) == (2, False)
    found = parted(left, arm("a", "b x", "c"), Comparison(rounding))  # one call more
    assert found is not None and (found.step, found.by_rounding) == (2, False)
