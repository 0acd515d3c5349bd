"""Records of other releases and numbers of ranks: right conversions pass, mistakes are named.

`projects/older/record` was made by `verify train_fsdp1.py --record record --steps 2` under torch 2.1.2.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from bench import Bench

from fsdp_migrate.verify.model import ParityReport, VerifyRequest
from fsdp_migrate.verify.noise import other_kernels, rounding_source
from fsdp_migrate.verify.recorded import read_record
from fsdp_migrate.verify.run import compare_records, keep_record, script_report
from fsdp_migrate.verify.world_sizes import batches_are_equal

OLDER = Path(__file__).parent / "projects" / "older"
RECORD = OLDER / "record"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs alone: each arm runs in a copy of its project."""
    folder = tmp_path_factory.mktemp("older")
    for path in OLDER.glob("*.py"):
        shutil.copy(path, folder)
    return folder


@pytest.fixture(scope="module")
def one_rank(two_ranks: Bench, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """A bench with one rank, forked from the same process."""
    run = replace(two_ranks.run, options=replace(two_ranks.run.options, nproc=1))
    return Bench(run, tmp_path_factory.mktemp("one"))


def verdict(made: Bench, project: Path, *options: str) -> ParityReport:
    return script_report(
        made.fresh(), VerifyRequest("train_fsdp2.py", options, baseline=str(RECORD), cwd=project)
    )


def test_record_tells_nothing_of_the_machine() -> None:
    words = "".join(path.read_text() for path in [*RECORD.rglob("*.json"), *RECORD.rglob("*.jsonl")])
    for path in ("/home", "/root", "/tmp", "/work", "site-packages"):
        assert path not in words
    assert read_record(RECORD).arm.torch_version.startswith("2.1.2")
    assert sum(path.stat().st_size for path in RECORD.rglob("*") if path.is_file()) < 80_000


def test_right_conversion_passes_against_a_record_of_torch_2_1(two_ranks: Bench, project: Path) -> None:
    report = verdict(two_ranks, project)
    assert report.passed and report.warnings == (), (report.causes, report.warnings)
    assert report.steps == 2 and report.original.kind == "FSDP1" and report.candidate.kind == "FSDP2"
    assert any(text.startswith("the original ran with torch 2.1.2") for text in report.notices)
    weights = next(check for check in report.checks if check.title == "Initial weights")
    assert weights.outcome.value == "equal" and weights.compared == 8
    assert all(one.relative < 1e-5 for one in report.largest)


@pytest.mark.parametrize(
    ("mistake", "code", "words"),
    [
        ("decay", "optimizer-settings", "weight_decay is 0.2 in the candidate's optimizer and 0.1"),
        ("optimizer-first", "optimizer-before-shard", "holds 8 parameters that are not in the model"),
        ("not-clipped", "not-clipped", "the original clipped the gradients of step 1"),
        ("data", "different-data", "the model was given other inputs in step 1"),
    ],
)
def test_mistake_is_named_against_a_record_of_torch_2_1(
    two_ranks: Bench, project: Path, mistake: str, code: str, words: str
) -> None:
    report = verdict(two_ranks, project, "--mistake", mistake)
    assert not report.passed
    assert report.causes[0].code == code and words in report.causes[0].text


def test_job_on_fewer_ranks_is_compared_by_what_ranks_share(one_rank: Bench, project: Path) -> None:
    """The record is of two ranks with four samples each."""
    same_parts = verdict(one_rank, project, "--micro", "4")
    assert same_parts.passed, same_parts.causes
    checks = {check.title: check for check in same_parts.checks}
    assert checks["Model inputs"].outcome.value == "equal"
    assert checks["Loss"].outcome.value == "not observed"
    at_once = verdict(one_rank, project)
    assert at_once.passed, at_once.causes
    checks = {check.title: check for check in at_once.checks}
    assert checks["Model inputs"].outcome.value == "not observed"
    assert checks["Loss"].compared == 2
    assert checks["Gradients before clipping"].compared == 16
    assert checks["Buffers"].compared == 3
    said = next(text for text in at_once.notices if "the original ran on 2 processes" in text)
    assert "and the candidate on 1" in said and "not compared: inputs and random numbers" in said


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        ("--mistake data", "other-batches", "the ranks together did not take in the same batch"),
        ("--micro 4 --mistake not-divided", "loss-scale", "is 2 times the original's in step 1"),
        ("--mistake optimizer-first", "optimizer-before-shard", "holds 8 parameters"),
    ],
)
def test_mistake_of_a_job_on_fewer_ranks_is_named(
    one_rank: Bench, project: Path, options: str, code: str, words: str
) -> None:
    report = verdict(one_rank, project, *options.split())
    assert not report.passed
    assert report.causes[0].code == code and words in report.causes[0].text


def test_two_records_of_other_releases_and_ranks_are_compared(
    two_ranks: Bench, one_rank: Bench, project: Path, tmp_path: Path
) -> None:
    for made, name in ((two_ranks, "two"), (one_rank, "one")):
        keep_record(made.fresh(), VerifyRequest("train_fsdp2.py", cwd=project), tmp_path / name)
        report = compare_records(RECORD, tmp_path / name)
        assert report.passed, report.causes
        assert report.nproc == made.run.ranks
    wrong = VerifyRequest("train_fsdp2.py", ("--mistake", "decay"), cwd=project)
    keep_record(two_ranks.fresh(), wrong, tmp_path / "wrong")
    report = compare_records(RECORD, tmp_path / "wrong")
    assert [cause.code for cause in report.causes] == ["optimizer-settings"]


def test_other_processor_rounds_otherwise(tmp_path: Path) -> None:
    """A record of another machine is judged as one of another release is."""
    copy = tmp_path / "copy"
    shutil.copytree(RECORD, copy)
    for path in copy.glob("rank*/events.jsonl"):
        text = path.read_text().replace('"processor": "', '"processor": "Another ')
        path.write_text(text)
    here, there = read_record(RECORD).arm, read_record(copy).arm
    assert other_kernels(here, here) == ""
    assert "compute with other kernels" in other_kernels(here, there)
    assert rounding_source(here, there, fixed_order=True).everywhere
    unknown = replace(there, processor="")  # as records have it that are older
    assert other_kernels(here, unknown) == ""


def test_inputs_that_nobody_saw_are_not_called_equal() -> None:
    """Models that are given no tensors at all, or arms without a step in common."""
    original = read_record(RECORD).arm
    candidate = replace(original, ranks=1)
    assert batches_are_equal(original, candidate)
    blind = {step: [replace(one, inputs=()) for one in facts] for step, facts in original.steps.items()}
    assert not batches_are_equal(replace(original, steps=blind), replace(candidate, steps=blind))
    assert not batches_are_equal(original, replace(candidate, steps={}))
    assert not batches_are_equal(replace(original, steps=blind), candidate)
