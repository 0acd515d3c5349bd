"""Arms that crash, hang or are killed: what both had done before is compared, in every form of the report."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from bench import Bench, bench

from fsdp_migrate.errors import JobError
from fsdp_migrate.reports import parity
from fsdp_migrate.verify.model import ArmName, Outcome, ParityReport, VerifyRequest

PROJECT = Path(__file__).parent / "projects" / "endings"
SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "verify-report.schema.json").read_text())


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return bench(tmp_path_factory.mktemp("endings"), 2, steps=3, project=PROJECT, timeout_s=6.0)


def verdict(made: Bench, *arguments: str) -> ParityReport:
    return made.script(VerifyRequest("train_fsdp2.py", arguments, baseline="train_fsdp1.py", cwd=PROJECT))


@pytest.fixture(scope="module")
def crashed(made: Bench) -> ParityReport:
    return verdict(made, "--dies", "candidate:3:raises")


def test_steps_before_a_crash_are_compared(crashed: ParityReport) -> None:
    assert not crashed.passed and crashed.agrees
    assert crashed.steps == crashed.original.steps == crashed.candidate.steps == 2
    assert [(one.arm, one.where) for one in crashed.died] == [(ArmName.CANDIDATE, "in step 3")]
    assert "the candidate failed on rank 1: ValueError: bad" in crashed.died[0].message
    assert {check.title for check in crashed.checks if check.outcome is Outcome.EQUAL} >= {
        "Loss",
        "Weights after each step",
        "Steps",
        "Tensors saved in checkpoints",
    }
    assert not crashed.warnings and not crashed.causes


@pytest.mark.parametrize("form", ["text", "json", "md", "html"])
def test_every_form_says_how_far_they_agree_and_what_ended_the_arm(crashed: ParityReport, form: str) -> None:
    text = parity.render(crashed, form)
    assert "ValueError: bad " in text and "\x1b" not in text
    assert "it fails there" in " ".join(text.split())  # the hint
    if form != "json":
        assert "the first 2 steps agree; the candidate died in step 3: train_fsdp2.py" in text
        return
    found = json.loads(text)
    jsonschema.Draft202012Validator(SCHEMA).validate(found)
    assert (found["passed"], found["steps"], found["died"][0]["where"]) == (False, 2, "in step 3")


def test_difference_before_a_hang_is_found_and_named(made: Bench) -> None:
    report = verdict(made, "--dies", "candidate:3:hangs", "--mistake", "rate")
    assert report.died[0].where == "in step 3" and "Rank 1 is stuck at" in report.died[0].message
    assert report.first is not None and report.first.step == 1
    assert report.causes[0].code == "optimizer-settings"
    words = "the arms differ from step 1 on, before the candidate died in step 3"
    assert words in parity.render(report, "text")


def test_original_that_is_killed_is_compared_too(made: Bench) -> None:
    """And the candidate, which goes on, is cut to what both have."""
    report = verdict(made, "--dies", "original:2:killed")
    assert report.agrees and report.steps == report.candidate.steps == 1
    assert [(one.arm, one.where) for one in report.died] == [(ArmName.ORIGINAL, "in step 2")]
    assert "killed by SIGKILL" in report.died[0].message
    assert "the first step agrees; the original died in step 2" in parity.render(report, "md")


def test_death_after_the_last_step_is_told_from_one_in_the_next(made: Bench) -> None:
    report = verdict(made, "--dies", "original:0:raises,candidate:0:raises")
    assert report.agrees and report.steps == 3
    assert [one.where for one in report.died] == ["after step 3", "after step 3"]


def test_death_before_the_first_step_leaves_nothing_to_compare(made: Bench) -> None:
    with pytest.raises(JobError, match="the candidate failed on rank 1: ValueError"):
        verdict(made, "--dies", "candidate:1:raises")
