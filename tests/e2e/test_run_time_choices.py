"""The choices the bundled project takes at run time are still taken after `rewrite`, with the same losses."""

import shutil
from pathlib import Path

import pytest

from fsdp_migrate.demo.losses import LossCurve
from fsdp_migrate.demo.ranks import RankJob
from fsdp_migrate.demo.road import PROJECT
from tests.program import run_program
from tests.ranks import forker

ROOT = Path(__file__).parents[2]
# Where nothing is clipped the two are equal to the last bit; the norm itself is summed in another order.
COMMON = ("--steps", "3", "--eval-interval", "3", "--save-interval", "0", "--grad-clip", "1e9")


@pytest.fixture(scope="module")
def rewritten(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("rewritten") / "project"
    shutil.copytree(PROJECT, directory, ignore=shutil.ignore_patterns("__pycache__"))
    done = run_program("rewrite", directory)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "fully_shard(" in (directory / "fsdp2_sharding.py").read_text()
    return directory


@pytest.mark.parametrize(
    "flags",
    [
        ("--wrap-policy", "size"),
        ("--precision", "bf16_pure"),
        ("--precision", "bf16", "--accumulation-steps", "1", "--sharding-strategy", "SHARD_GRAD_OP"),
        ("--sharding-strategy", "NO_SHARD", "--bias", "--no-use-orig-params"),
    ],
    ids=" ".join,
)
def test_same_command_line_gives_the_same_losses(
    flags: tuple[str, ...], rewritten: Path, tmp_path: Path
) -> None:
    curves, printed = [], []
    for name, project in (("fsdp1", PROJECT), ("fsdp2", rewritten)):
        arguments = (*COMMON, *flags, "--out-dir", str(tmp_path / name))
        forker().run(RankJob("train.py", arguments, 2, project, tmp_path / "logs" / name))
        curves.append(LossCurve.read(tmp_path / name / "log.jsonl"))
        log = (tmp_path / "logs" / name / "rank0.log").read_text()
        printed.append(next(line for line in log.splitlines() if " parameters in " in line))
    assert curves[0] == curves[1]
    assert sorted(curves[0].train) == [1, 2, 3]
    assert curves[0].train[3] < curves[0].train[1]
    assert printed[0] == printed[1], "as many parameters in as many units"


def test_rewritten_project_saves_what_it_and_fsdp1_resume(rewritten: Path, tmp_path: Path) -> None:
    saving = ("--steps", "4", "--grad-clip", "1e9", "--eval-interval", "2", "--save-interval", "2")
    formats = ("--save-formats", "full,sharded")
    run(rewritten, tmp_path / "uninterrupted", *saving, *formats)
    reference = LossCurve.read(tmp_path / "uninterrupted" / "log.jsonl").after(2)
    assert sorted(reference.train) == [3, 4]
    saved = tmp_path / "uninterrupted" / "checkpoints"
    for name, project, checkpoint in (
        ("full", rewritten, "full-000002.pt"),
        ("sharded", rewritten, "sharded-000002"),
        ("back to FSDP1", PROJECT, "full-000002.pt"),
    ):
        resumed = (*saving, "--save-interval", "0", "--resume", str(saved / checkpoint))
        assert run(project, tmp_path / name, *resumed) == reference, name


def run(project: Path, out_dir: Path, *flags: str) -> LossCurve:
    forker().run(RankJob("train.py", ("--out-dir", str(out_dir), *flags), 2, project, out_dir / "logs"))
    return LossCurve.read(out_dir / "log.jsonl")
