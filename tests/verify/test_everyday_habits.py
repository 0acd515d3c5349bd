"""Habits of real trainers that a right conversion keeps, and that `verify` once took for a difference."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from bench import Bench

from fsdp_migrate.verify.model import Outcome, ParityReport

EVERYDAY = Path(__file__).parent / "projects" / "everyday"


@pytest.fixture(scope="module")
def made(two_ranks: Bench, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    run = replace(two_ranks.run, options=replace(two_ranks.run.options, steps=5))
    return Bench(run, tmp_path_factory.mktemp("everyday"), EVERYDAY)


@pytest.fixture(scope="module")
def report(made: Bench) -> ParityReport:
    return made.verdict()


def test_right_conversion_passes(report: ParityReport) -> None:
    assert report.passed and not report.warnings, (report.first, report.causes, report.warnings)
    assert report.steps == 4


def test_loss_is_that_of_the_job_and_not_the_scaled_one(report: ParityReport) -> None:
    """FSDP1's scaler gives back infinity where the loss is fp16, torch's does not."""
    for arm in (report.original, report.candidate):
        assert all(20 < loss < 30 for loss in arm.losses[1::2]), arm


def test_both_ways_to_save_are_compared(report: ParityReport) -> None:
    """5 weights and biases of 2 units and a layer, their momentum, in a sharded checkpoint and two files."""
    seen = {check.title: check for check in report.checks}
    saved = seen["Tensors saved in checkpoints"]
    assert saved.compared == 3 * 2 * 10 and saved.outcome in (Outcome.EQUAL, Outcome.WITHIN)
    assert seen["Checkpoints: keys, and whole tensors"].outcome is Outcome.EQUAL


def test_programs_that_the_job_starts_are_told(report: ParityReport) -> None:
    started = [line for line in report.not_observed if "starts another program" in line]
    assert len(started) == 1 and f"({sys.executable} -c pass)" in started[0]


def test_unit_within_activation_checkpointing_counts_once(report: ParityReport) -> None:
    assert report.original.units == report.candidate.units
    assert len(report.candidate.units) == 5


@pytest.mark.parametrize(
    ("mistake", "code", "words"),
    [
        ("scaler-off", "scaler-missing", "losses are multiplied by 4096 before backward() in the original"),
        ("turn-lost", "optimizer-turns", "step 1 is that of the optimizer of"),
        ("state-lost", "optimizer-state-lost", "counts 1 steps for 0.down.bias after step 3"),
        ("save-early", "saved-when", "saved after step 2 in the candidate and after step 4 in the original"),
    ],
)
def test_mistake_is_named_first(made: Bench, mistake: str, code: str, words: str) -> None:
    found = made.verdict(mistake=mistake)
    assert not found.passed
    assert found.causes[0].code == code, found.causes
    assert words in found.causes[0].text
