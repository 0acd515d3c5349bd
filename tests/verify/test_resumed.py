"""`verify --checkpoint OLD`: both arms resume, the candidate from what convert-ckpt makes of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from bench import Benches
from test_causes_of_records import arm, causes, parts
from test_settings_of_a_repository import chosen, context, write
from typer.testing import CliRunner

from checkpoint_convert.errors import CheckpointError
from fsdp_migrate.cli.app import app
from fsdp_migrate.cli.verify_checkpoint import resumed
from fsdp_migrate.cli.verify_settings import settled
from fsdp_migrate.errors import UsageError
from fsdp_migrate.verify.causes import likely_causes
from fsdp_migrate.verify.compare import Comparison, compare
from fsdp_migrate.verify.distance import difference
from fsdp_migrate.verify.evidence import Evidence
from fsdp_migrate.verify.model import ArmName, LaunchOptions, Outcome, ParityReport
from fsdp_migrate.verify.record import Load, OptimizerFacts
from fsdp_migrate.verify.reference_job.config import ReferenceConfig
from fsdp_migrate.verify.resumed import Resumed, resumed_check
from fsdp_migrate.verify.whole import assemble

SCRIPT: dict[str, Any] = {"script": "train.py", "arguments": ("--resume", "{checkpoint}")}
AS_FILE = "--to torch --optim-key optimizer"


@contextmanager
def conversion(
    old: Path, convert: str = "", new: Path | None = None, job: Any = SCRIPT, **launch: Any
) -> Iterator[tuple[Resumed, list[str]]]:
    said: list[str] = []
    asked = chosen(Path.cwd(), checkpoint=old, convert=convert, **job)
    with resumed(asked, new, LaunchOptions(**launch), said.append) as found:
        assert found is not None
        yield found, said


def check(report: ParityReport, title: str) -> tuple[Outcome, int]:
    return next((one.outcome, one.compared) for one in report.checks if one.title == title)


def test_both_arms_resume_from_the_old_checkpoint(zoo: Benches) -> None:
    """With what was loaded compared before the first step, and mistakes of loading named."""
    bench = zoo.of(2)
    with conversion(zoo.checkpoint, AS_FILE) as (found, _):
        made = Path(found.new)
        assert made.name == zoo.checkpoint.name and made != zoo.checkpoint
        report = bench.verdict("--resume", "{checkpoint}", checkpoint=found)
        assert report.passed, report.causes
        assert check(report, "Resumed from the checkpoint")[0] is Outcome.EQUAL
        # Three values of 14 parameters: before the first of three steps, and after each.
        assert check(report, "Optimizer state") == (Outcome.EQUAL, 4 * 3 * 14)

        report = bench.verdict(
            "--resume", "{checkpoint}", checkpoint=found, mistake="optimizer-of-other-parameters"
        )
        assert (report.passed, report.causes[0].code) == (False, "optimizer-loaded-otherwise")
        assert "exp_avg of blocks.0.up.weight first" in report.causes[0].text
        assert report.first is not None and report.first.step == 0

        report = bench.verdict("--resume", "{checkpoint}", checkpoint=found, mistake="resumes-from-nothing")
        assert (report.passed, report.causes[0].code) == (False, "not-resumed")
        assert found.new in report.causes[0].text
    assert not made.exists()


def test_reference_job_resumes_as_each_of_both_does(zoo: Benches, tmp_path: Path) -> None:
    """The FSDP1 arm saves and loads its own file; the FSDP2 arm what that was converted to."""
    bench, old = zoo.of(2), tmp_path / "old.pt"
    config = ReferenceConfig(
        steps=2, sequence=16, dtype="bf16", clip=None, ac="full", offload=True, save=str(old)
    )
    (first,) = bench.fresh().reference(config, (ArmName.ORIGINAL,)).values()
    with conversion(old, job={}) as (found, _):
        assert torch.load(old)["step"] == 2
        going_on = replace(config, save="", old=found.old, new=found.new)
        arms = bench.fresh().reference(going_on, (ArmName.ORIGINAL, ArmName.CANDIDATE))
    before, after = arms[ArmName.ORIGINAL], arms[ArmName.CANDIDATE]
    compared = compare(before, after)
    assert compared.bitwise and compared.compared["optimizer state exp_avg"] == 3 * 39
    assert compare(first, before).first is not None  # they go on, and do not start anew
    (state,) = after.tensors(0, "optimizer state step")["norm.weight"][:1]
    assert state.values()[0] == 2.0
    same = (
        assemble(first.tensors(2, "weight")["norm.weight"]),
        assemble(after.tensors(0, "weight")["norm.weight"]),
    )
    assert difference(*same) is None


def test_conversion_has_a_place_of_its_own(zoo: Benches, tmp_path: Path) -> None:
    with conversion(zoo.checkpoint, keep=tmp_path / "kept") as (found, said):
        assert Path(found.new) == tmp_path / "kept" / "checkpoint" / "checkpoint"
        assert (Path(found.new) / ".metadata").exists()
        assert said == [f"converting {zoo.checkpoint}"]
        assert "the original loads it, the candidate what convert-ckpt makes of it" in found.words
    assert Path(found.new).exists()
    with pytest.raises(UsageError, match="it exists and is not an empty directory"):
        conversion(zoo.checkpoint, keep=tmp_path / "kept").__enter__()
    with conversion(Path(found.new)) as (again, _):
        assert (again.new, again.old) == (found.new, found.new)  # loadable as it is
        assert "which FSDP2 loads as it is" in again.words
    with conversion(zoo.checkpoint, new=Path(found.new)) as (given, said):
        assert (given.new, said) == (found.new, [])


def test_what_stands_beside_model_and_optimizer_goes_along(zoo: Benches, tmp_path: Path) -> None:
    """Loaders of directories read schedulers and random states from files of their own."""
    old, held = tmp_path / "checkpoint-500", torch.load(zoo.checkpoint, weights_only=False)
    old.mkdir()
    for part in ("model", "optimizer"):
        torch.save(held[part], old / {"model": "pytorch_model_fsdp.bin"}.get(part, "optimizer.bin"))
    torch.save({"last_epoch": 2}, old / "scheduler.bin")
    (old / "trainer_state.json").write_text("{}")
    with conversion(old, "--layout accelerate") as (found, _):
        made = Path(found.new)
        assert made.name == "checkpoint-500"
        assert {path.name for path in made.iterdir() if path.is_file()} == {
            *("conversion.json", "scheduler.bin", "trainer_state.json"),
        }
        assert (made / "optimizer_0" / ".metadata").exists()
        assert torch.load(made / "scheduler.bin") == {"last_epoch": 2}


@pytest.mark.parametrize(
    ("convert", "error", "words"),
    [
        ("--strict --to safetensors", typer.Exit, "1"),
        ("--dry-run", UsageError, "writes nothing"),
        ("--overwrite", UsageError, "writes over what is there"),
        ("--to torch --link", CheckpointError, "--link"),
    ],
)
def test_what_convert_ckpt_refuses_is_refused(
    zoo: Benches, tmp_path: Path, convert: str, error: type[Exception], words: str
) -> None:
    held = torch.load(zoo.checkpoint, weights_only=False)
    torch.save({**held, "epoch": 3}, tmp_path / "old.pt")  # which has no place in safetensors
    with pytest.raises(error, match=words):
        conversion(tmp_path / "old.pt", convert).__enter__()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("train.py --checkpoint OLD", "no argument of the script says {checkpoint}"),
        ("train.py --checkpoint NONE -- {checkpoint}", "no such file or directory"),
        ("train.py --checkpoint OLD --converted NONE -- {checkpoint}", "no such file or directory"),
        ("train.py --converted OLD", "--converted is of a checkpoint, and none is named"),
        ("train.py --convert --strict", "--convert is of a checkpoint, and none is named"),
        ("train.py --checkpoint OLD --converted OLD --convert -x -- {checkpoint}", "has no place beside it"),
        ("train.py --checkpoint OLD --nnodes 2 --keep k -- {checkpoint}", "add --converted NEW"),
        ("train.py --checkpoint OLD --convert --modl -- {checkpoint}", "No such option: --modl"),
        ("train.py --checkpoint BAD -- {checkpoint}", "stand in --convert '...' here"),
    ],
)
def test_unusable_checkpoint_is_bad_input(zoo: Benches, tmp_path: Path, line: str, words: str) -> None:
    bad = tmp_path / "flat.pt"
    torch.save({"_flat_param": torch.zeros(8)}, bad)
    names = {"OLD": str(zoo.checkpoint), "BAD": str(bad), "NONE": str(tmp_path / "none")}
    done = CliRunner().invoke(app, ["verify", *(names.get(word, word) for word in line.split())])
    assert done.exit_code == 2, done.output
    assert words in " ".join(done.stderr.split())


def test_arm_that_does_not_open_the_checkpoint_did_not_resume() -> None:
    arms = [arm(kind, {}, resumes=f"/{kind}.pt", resumed=True) for kind in ("FSDP1", "FSDP2")]
    assert [one.outcome for one in resumed_check(*arms)] == [Outcome.EQUAL]
    for one in arms:
        one.resumed = False
    (found,) = resumed_check(*arms)
    assert (found.outcome, "the original and the candidate never" in found.detail) == (Outcome.DIFFERS, True)
    assert causes(*arms)[0] == "not-resumed"
    arms[1].resumed, arms[0].resumes = True, "/a/model.safetensors"  # read out of sight
    assert [one.outcome for one in resumed_check(*arms)] == [Outcome.NOT_OBSERVED]
    assert "not-resumed" not in causes(*arms)
    assert resumed_check(arm("FSDP1", {}), arm("FSDP2", {})) == []


def test_another_checkpoint_that_is_loaded_is_named_and_no_shared_counter() -> None:
    arms = arm("FSDP1", {}, loads=[Load(0, "model", 0)]), arm("FSDP2", {}, loads=[Load(0, "model", 0)])
    for made, value in zip(arms, (10.0, 20.0), strict=True):
        made.parts[0, "weight"] = parts([value, 1.0])
        for step in (0, 1):
            made.parts[step, "optimizer state step"] = parts([value + step])
    found = compare(*arms)
    assert causes(*arms, found)[0] == "loaded-otherwise"
    assert "optimizer-step-shared" not in causes(*arms, found)
    arms[1].parts[0, "optimizer state step"] = parts([10.0])
    assert "optimizer-step-shared" in causes(*arms, compare(*arms))


@pytest.mark.parametrize("resumes", ["", "/old"])
def test_rate_of_a_run_that_starts_anew_is_that_of_a_scheduler_that_is_not_loaded(resumes: str) -> None:
    arms = arm("FSDP1", {}, resumes=resumes), arm("FSDP2", {}, resumes=resumes)
    for made, rate in zip(arms, (0.01, 0.1), strict=True):
        made.resumed = True
        made.optimizers = [OptimizerFacts(1, 0, "AdamW", {"w": (("lr", rate),)}, 0)]
    (found,) = likely_causes(Evidence(*arms, Comparison()))
    assert found.code == "optimizer-settings" and "lr is 0.1 in the candidate" in found.text
    assert ("load the scheduler's state" in found.remedy) == bool(resumes)


def test_other_place_in_the_data_is_named_where_both_resume() -> None:
    left, right = {"inputs": ("a",)}, {"inputs": ("b",)}
    assert causes(arm("FSDP1", left), arm("FSDP2", right))[0] == "different-data"
    resuming = arm("FSDP1", left, resumes="/a"), arm("FSDP2", right, resumes="/b", resumed=True)
    resuming[0].resumed = True
    assert causes(*resuming)[0] == "resumed-elsewhere"


def test_states_before_the_first_step_are_compared_where_both_tell() -> None:
    arms = arm("FSDP1", {}), arm("FSDP2", {})
    arms[0].parts[0, "optimizer state exp_avg"] = parts([1.0, 2.0])
    assert compare(*arms).compared.get("optimizer state exp_avg") is None
    arms[1].parts[0, "optimizer state exp_avg"] = parts([1.0, 3.0])
    found = compare(*arms)
    assert (found.compared["optimizer state exp_avg"], found.first.step if found.first else -1) == (1, 0)
    assert causes(*arms, found)[0] == "optimizer-loaded-otherwise"
    assert "optimizer-loaded-otherwise" not in causes(*arms, Comparison())


def test_settings_name_the_checkpoint(tmp_path: Path) -> None:
    write(
        tmp_path, 'script = "train.py"\narguments = ["{checkpoint}"]\ncheckpoint = "old.pt"\nconvert = "-x"'
    )
    found = settled(context(), chosen(tmp_path))
    assert (found.checkpoint, found.convert) == (tmp_path / "old.pt", "-x")
    other = settled(context("script"), chosen(tmp_path, script="other.py"))
    assert (other.checkpoint, other.convert) == (None, "")
    mine = settled(context("checkpoint"), chosen(tmp_path, checkpoint=Path("/new.pt")))
    assert mine.checkpoint == Path("/new.pt")
