"""Records are complete, are compared without FSDP1, and localise one wrong tensor by sketches alone."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bench import PROJECT, Bench, bench
from safetensors.numpy import load_file

from fsdp_migrate.errors import UsageError
from fsdp_migrate.verify.model import Outcome, VerifyRequest
from fsdp_migrate.verify.recorded import read_record
from fsdp_migrate.verify.run import compare_records, keep_record, record_script, script_report, verify_script


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records of the small project: FSDP1, FSDP2, and FSDP2 with one wrong tensor, as sketches too."""
    folder = tmp_path_factory.mktemp("records")
    made = bench(folder / "bench", 2)
    for name, script, arguments, limit in (
        ("fsdp1", "train_fsdp1.py", (), 1 << 20),
        ("fsdp1-sketches", "train_fsdp1.py", (), 0),
        ("fsdp2-sketches", "train_fsdp2.py", (), 0),
        ("seed-sketches", "train_fsdp2.py", ("--mistake", "seed"), 0),
    ):
        run = made.fresh()
        said: list[str] = []
        options = replace(run.options, full_limit_bytes=limit)
        run = replace(run, options=options, progress=said.append)
        kept = keep_record(run, VerifyRequest(script, arguments, cwd=PROJECT), folder / name)
        assert (kept.steps, kept.ranks) == (3, 2)
        assert said[0] == "running the job on 2 processes"  # it is not known to be either side
    return folder


def test_record_says_what_it_is_of(records: Path) -> None:
    found = json.loads((records / "fsdp1" / "record.json").read_text())
    assert (found["format"], found["version"], found["sharding"]) == ("fsdp-migrate record", 4, "FSDP1")
    assert found["environment"]["torch"].startswith("2.")
    held = [load_file(records / "fsdp1" / f"rank{rank}" / "tensors.safetensors") for rank in (0, 1)]
    parts = [t for each in held for key, t in each.items() if key.startswith("step 0/weight/blocks.0.up.w")]
    assert sum(part.size for part in parts) == 32 * 16
    assert all(part.dtype == "float32" and part.any() for part in parts)
    assert not (records / "fsdp1" / "rank0" / "tensors.bin").exists()
    assert load_file(records / "fsdp1-sketches" / "rank0" / "tensors.safetensors") == {}


def test_live_candidate_is_compared_with_a_record(records: Path, two_ranks: Bench) -> None:
    """Fewer steps than the record has: it is compared as far as they go."""
    request = VerifyRequest("train_fsdp2.py", baseline=str(records / "fsdp1"), cwd=PROJECT)
    run = two_ranks.fresh()
    report = script_report(replace(run, options=replace(run.options, steps=2)), request)
    assert report.passed, report.causes
    assert report.largest == ()
    assert report.steps == 2
    assert "the record" in report.baseline and "FSDP1" in report.baseline


def test_record_is_not_run_again(records: Path) -> None:
    request = VerifyRequest("train_fsdp2.py", baseline=str(records / "fsdp1"), cwd=PROJECT)
    for name, option in (("third_arm", "--third-arm"), ("profile", "--profile")):
        launch = replace(request.launch, **{name: True})
        with pytest.raises(UsageError, match=f"{option} runs the original again"):
            verify_script(replace(request, launch=launch))


def test_two_records_are_compared_and_a_sketch_localises_one_wrong_tensor(records: Path) -> None:
    right = compare_records(records / "fsdp1-sketches", records / "fsdp2-sketches")
    assert right.passed and right.largest == ()
    same = compare_records(records / "fsdp1", records / "fsdp1")  # another machine, another torch
    assert same.passed and same.largest == ()
    mixed = compare_records(records / "fsdp1", records / "fsdp2-sketches")  # elements here, sums there
    assert mixed.passed and mixed.largest == ()
    unlike = compare_records(records / "fsdp1", records / "seed-sketches")
    assert unlike.first is not None
    assert (unlike.first.step, unlike.first.name) == (0, "head.weight")
    wrong = compare_records(records / "fsdp1-sketches", records / "seed-sketches")
    assert not wrong.passed
    assert wrong.causes[0].code == "initial-weights"
    differing = {name for name, row in wrong.heat if row[0]}
    assert differing == {"head.weight"}
    assert wrong.first is not None
    assert (wrong.first.step, wrong.first.name) == (0, "head.weight")
    assert (
        next(check for check in wrong.checks if check.title == "Initial weights").outcome is Outcome.DIFFERS
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda found: found | {"version": 5}, "version 5"),
        (lambda found: found | {"format": "x"}, "not that of a record"),
        (lambda found: {"format": found["format"], "version": 1}, "damaged"),
    ],
)
def test_record_that_cannot_be_read_is_bad_input(records: Path, tmp_path: Path, change, words: str) -> None:  # type: ignore[no-untyped-def]
    shutil.copytree(records / "fsdp1", tmp_path / "copy")
    manifest = tmp_path / "copy" / "record.json"
    manifest.write_text(json.dumps(change(json.loads(manifest.read_text()))))
    with pytest.raises(UsageError, match=words):
        read_record(tmp_path / "copy")
    with pytest.raises(UsageError, match="not a record"):
        read_record(tmp_path)


_LATER = {
    "start": {"looks_on"},
    "step": {"zeroed", "random", "rewritten", "evaluating", "bytes"},
    "parameters": {"sharded", "tied"},
    "model": {"checkpointed", "checkpointing"},
    "save": {"partial"},
    "input_dtypes": {"autocast"},
}
_LATER_OF_UNITS = {"shards", "replicas", "reshards"}


def _older(event: dict[str, Any]) -> dict[str, Any]:
    """An event as the first version wrote it, with a field that nobody knows."""
    kept = {key: value for key, value in event.items() if key not in _LATER.get(event["event"], set())}
    if event["event"] == "model":
        kept["units"] = [
            {key: value for key, value in unit.items() if key not in _LATER_OF_UNITS} | {"colour": "red"}
            for unit in event["units"]
        ]
    return kept | {"unknown": 1}


def _as_version_1(source: Path, folder: Path) -> Path:
    shutil.copytree(source, folder)
    manifest = folder / "record.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"version": 1, "later": []}))
    for path in folder.glob("rank*/events.jsonl"):
        events = [_older(json.loads(line)) for line in path.read_text().splitlines()]
        events.append({"event": "of a later version", "step": 1})
        path.write_text("".join(json.dumps(event) + "\n" for event in events))
    return folder


def test_record_of_an_older_program_is_read(records: Path, tmp_path: Path, two_ranks: Bench) -> None:
    """What it lacks is no difference, and what it says beyond what is known does no harm."""
    old = _as_version_1(records / "fsdp1", tmp_path / "old")
    for before, after in (
        (old, records / "fsdp1"),
        (records / "fsdp1", old),
        (old, records / "fsdp2-sketches"),
    ):
        report = compare_records(before, after)
        assert report.passed and report.largest == () and report.warnings == (), (before.name, after.name)
    request = VerifyRequest("train_fsdp2.py", ("--mistake", "seed"), baseline=str(old), cwd=PROJECT)
    wrong = script_report(two_ranks.fresh(), request)
    assert wrong.causes[0].code == "initial-weights"


@pytest.mark.parametrize("version", [2, 3])
def test_digests_of_other_sums_are_not_compared(records: Path, tmp_path: Path, version: int) -> None:
    """Elements are, see above; the first two versions had one digest."""
    shutil.copytree(records / "fsdp1-sketches", tmp_path / "old")
    manifest = tmp_path / "old" / "record.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"version": version}))
    for path in (tmp_path / "old").glob("rank*/events.jsonl") if version < 3 else ():
        path.write_text(path.read_text().replace('"further"', '"unknown"'))
    with pytest.raises(UsageError, match=f"digests of a record of version {version}"):
        read_record(tmp_path / "old")


def test_other_environment_is_said(records: Path, tmp_path: Path) -> None:
    shutil.copytree(records / "fsdp1", tmp_path / "copy")
    manifest = tmp_path / "copy" / "record.json"
    found = json.loads(manifest.read_text())
    found["environment"]["variables"] |= {"NCCL_ALGO": "Ring"}
    found["device"] = "cuda"
    manifest.write_text(json.dumps(found))
    report = compare_records(records / "fsdp1", tmp_path / "copy")
    assert report.passed
    assert "NCCL_ALGO was not set for the original and Ring for the candidate" in report.notices
    assert "the original ran on cpu and the candidate on cuda" in report.notices


def test_nothing_is_written_over(records: Path) -> None:
    request = VerifyRequest("train_fsdp2.py", cwd=PROJECT)
    with pytest.raises(UsageError, match="is not an empty directory"):
        record_script(request, records / "fsdp1")
