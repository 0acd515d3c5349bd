"""Programs of frameworks and packages run as they are, and what frameworks hide is seen through."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from bench import PROJECT, Bench

from fsdp_migrate.verify.model import Outcome, ParityReport, VerifyRequest

FRAMEWORKS = Path(__file__).parent / "projects" / "frameworks"


def outcomes(report: ParityReport) -> dict[str, Outcome]:
    return {check.title: check.outcome for check in report.checks}


@pytest.fixture
def arms(tmp_path: Path) -> tuple[Path, Path]:
    """Two copies of the programs, the second with FSDP2."""
    for name in ("before", "after"):
        shutil.copytree(FRAMEWORKS, tmp_path / name)
    after = tmp_path / "after"
    for path in after.glob("with_*.py"):
        path.write_text(path.read_text().replace("VERSION = 1\n", "VERSION = 2\n"))
    (after / "sharding_fsdp2.py").rename(after / "package" / "sharding.py")
    return tmp_path / "before", after


@pytest.mark.parametrize("name", ["with_accelerate", "with_trainer", "with_lightning"])
def test_program_of_a_framework_is_rehearsed_untouched(
    two_ranks: Bench, arms: tuple[Path, Path], name: str
) -> None:
    before, after = arms
    report = two_ranks.script(VerifyRequest(f"{name}.py", baseline=str(before), cwd=after))
    assert report.passed, (report.first, report.causes)
    assert not report.warnings
    assert (report.original.kind, report.candidate.kind) == ("FSDP1", "FSDP2")
    assert report.steps == 3
    seen = outcomes(report)
    for title in ("Model inputs", "Loss", "Gradients before clipping", "Weights after each step"):
        assert seen[title] is Outcome.EQUAL, title
    assert seen["Gradient reductions per step"] is Outcome.EQUAL
    assert "process group backend nccl -> gloo" in report.substitutions
    assert report.original.losses[2] < report.original.losses[0]


def test_package_entry_point_with_two_models_and_optimizers(
    two_ranks: Bench, arms: tuple[Path, Path]
) -> None:
    before, after = arms
    request = VerifyRequest(
        "package.train", ("--rate", "0.01"), as_module=True, baseline=str(before), cwd=after
    )
    report = two_ranks.script(request)
    assert report.passed, (report.first, report.causes)
    assert report.largest == ()
    assert (report.original.kind, report.candidate.kind) == ("FSDP1", "FSDP2")
    assert report.original.parameters == 2 * 15
    assert "model2.blocks.0" in report.candidate.units
    assert not list(after.glob("step*.pt"))  # the arms run in copies


def test_jobs_that_shard_nothing_do_not_pass(two_ranks: Bench, tmp_path: Path) -> None:
    """Accelerate without a process group trains each rank alone: equal numbers say nothing of FSDP."""
    program = (
        "import torch\nfrom torch import nn\ntorch.manual_seed(0)\nmodel = nn.Linear(4, 4)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for _ in range(3):\n    model(torch.ones(2, 4)).sum().backward()\n    optimizer.step()\n"
    )
    for name in ("before.py", "after.py"):
        (tmp_path / name).write_text(program)
    report = two_ranks.script(VerifyRequest("after.py", baseline="before.py", cwd=tmp_path))
    assert not report.passed
    assert report.causes[0].code == "nothing-sharded"
    assert "neither arm is sharded" in report.causes[0].text


def test_program_that_is_not_converted_does_not_pass(two_ranks: Bench) -> None:
    """Two runs of the old program are equal, and prove nothing."""
    report = two_ranks.script(VerifyRequest("train_fsdp1.py", baseline="train_fsdp1.py", cwd=PROJECT))
    assert not report.passed
    assert report.largest == ()
    assert report.causes[0].code == "not-converted"


def test_job_whose_model_nobody_saw_does_not_pass(two_ranks: Bench, tmp_path: Path) -> None:
    program = (
        "import torch\nweight = torch.nn.Parameter(torch.ones(3))\n"
        "optimizer = torch.optim.SGD([weight], lr=0.1)\n"
        "for _ in range(3):\n    (weight * 2).sum().backward()\n    optimizer.step()\n"
    )
    for name in ("before.py", "after.py"):
        (tmp_path / name).write_text(program)
    report = two_ranks.script(VerifyRequest("after.py", baseline="before.py", cwd=tmp_path))
    assert not report.passed
    assert report.causes[0].code == "nothing-seen"
    assert outcomes(report)["Enough was observed to judge"] is Outcome.DIFFERS
