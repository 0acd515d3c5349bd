"""Mistakes that no trained number shows: in evaluation, in the last checkpoint, in files of a logger."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench import Bench, bench

from fsdp_migrate.verify.answer_calls import missing_call
from fsdp_migrate.verify.baseline import sources
from fsdp_migrate.verify.compare import compare
from fsdp_migrate.verify.model import ANSWER, SAVED, ArmName, Outcome, ParityReport, VerifyRequest
from fsdp_migrate.verify.older_looks import seen_alike

PROJECT = Path(__file__).parent / "projects" / "endings"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return bench(tmp_path_factory.mktemp("after"), 2, steps=3, project=PROJECT)


def verdict(made: Bench, *arguments: str) -> ParityReport:
    return made.script(VerifyRequest("train_fsdp2.py", arguments, baseline="train_fsdp1.py", cwd=PROJECT))


@pytest.mark.parametrize("more", [[], ["--parts", "--exits", "--spawn"]])
def test_right_program_passes_with_what_it_does_in_the_end(made: Bench, more: list[str]) -> None:
    report = verdict(made, *more)
    assert report.passed and not report.warnings, (report.first, report.causes, report.warnings)
    seen = {check.title: check for check in report.checks}
    assert seen["Answers without gradients"].compared == 4  # after steps 2 and 3, two ranks
    assert seen["Answers without gradients"].outcome is Outcome.EQUAL
    counters = 27 if more else 0  # of the optimizer's own parts the step counters alone are the same
    assert seen["Tensors saved in checkpoints"].compared == 3 * 2 * 6 + counters
    spawns = [line for line in report.substitutions if "spawn calls its function in the ranks" in line]
    assert len(spawns) == bool(more)
    parts = [line for line in report.notices if "the rank's own part in both arms" in line]
    assert len(parts) == (3 if more else 0)
    assert not any("stopped after" in line for line in report.notices)  # it ends by itself


@pytest.mark.parametrize(
    ("mistake", "code", "words"),
    [
        ("mode", "evaluated-in-training-mode", "10 more modules are in training mode in the candidate"),
        ("data", "evaluated-on-other-data", "call 1 after step 3, rank 0"),
        ("precision", "answers-differ", "call 1 after step 3, rank 0"),
        ("last-save", "saved-values", "file 5 of those saved, after step 3"),
    ],
)
def test_mistake_is_found_and_named(made: Bench, mistake: str, code: str, words: str) -> None:
    report = verdict(made, "--mistake", mistake)
    assert not report.passed
    assert report.causes[0].code == code, report.causes
    assert words in report.causes[0].text


@pytest.mark.parametrize(
    ("mistake", "words"),
    [
        ("written", "the job prints or writes other numbers: eval_loss"),
        ("unwritten", "the original writes {}/out/losses.csv and the candidate does not"),
    ],
)
def test_what_only_files_show_is_a_warning(made: Bench, mistake: str, words: str) -> None:
    report = verdict(made, "--mistake", mistake)
    assert report.passed
    assert any(words.format(PROJECT) in line for line in report.warnings), report.warnings


def test_what_an_older_program_did_not_record_is_no_difference(made: Bench) -> None:
    """It stopped with the last step, and did not listen to calls without gradients."""
    request = VerifyRequest("train_fsdp2.py", baseline="train_fsdp1.py", cwd=PROJECT)
    older, newer = (
        made.fresh().script(request, source, arm)[0]
        for source, arm in zip(sources(request), (ArmName.ORIGINAL, ArmName.CANDIDATE), strict=True)
    )
    older.looks_on = False
    older.answers.clear()
    older.saves = [one for one in older.saves if one.step < 3]
    older.parts = {
        (step, quantity): parts
        for (step, quantity), parts in older.parts.items()
        if quantity != ANSWER and (step, quantity) != (3, SAVED)
    }
    assert not compare(older, newer).bitwise and missing_call(older, newer)
    seen_alike(older, newer)
    assert compare(older, newer).bitwise and not missing_call(older, newer)
    assert len(older.saves) == len(newer.saves) == 4
