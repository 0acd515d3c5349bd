"""Real FSDP1 jobs save, the command converts, real FSDP2 jobs load at world sizes 1 to 4 and train on.

Bit for bit: what FSDP2 holds after loading is what FSDP1 saved, and the losses and weights after resuming are
those of the FSDP1 job that simply went on.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from fsdp_migrate.cli.app import app
from tests.checkpoint_convert.fsdp_jobs.fsdp1 import AFTER, BEFORE
from tests.ranks import run_module

FACTORY = "tests.checkpoint_convert.fsdp_jobs.model:build"
KINDS = ("full", "local", "sharded", "torch_again")
LAYOUTS = ("torchtitan", "accelerate", "lightning")
"""For each library's own loader."""
CASES = [(job, kind) for job in ("flat", "orig") for kind in KINDS]
LAYOUT_CASES = [("flat", layout) for layout in LAYOUTS]
# Their digests are the same, so other numbers of ranks load one whole and one sharded layout of each job.
OTHERS = [*CASES[1::2], *LAYOUT_CASES]
WORLDS = {1: OTHERS, 2: [*CASES, *LAYOUT_CASES], 3: OTHERS, 4: LAYOUT_CASES}
LOADS = [(world_size, job, kind) for world_size, cases in WORLDS.items() for job, kind in cases]


def convert_all(saved: Path, out: Path) -> None:
    """Convert every kind of checkpoint of one FSDP1 job."""
    out.mkdir(parents=True)
    convert(saved / "full.pt", out / "full")
    flat = [*sorted(saved.glob("local_rank*.pt")), *sorted(saved.glob("raw_optim_rank*.pt"))]
    convert(*flat, out / "local", "--model", FACTORY, "--against", saved / "truth.pt")
    convert(*sorted(saved.glob("sharded_rank*.pt")), out / "sharded", "--against", saved / "truth.pt")
    # To one torch.save file and on to a directory laid out for three ranks: nothing is lost on the way.
    convert(saved / "full.pt", out / "again.pt", "--to", "torch")
    convert(out / "again.pt", out / "torch_again", "--shards", "3", "--jobs", "2")
    for layout in LAYOUTS if saved.name == "flat" else ():
        convert(saved / "full.pt", out / layout, "--layout", layout)


def convert(*arguments: object) -> None:
    """Run the command, in this process for speed."""
    done = CliRunner().invoke(app, ["convert-ckpt", *map(str, arguments)])
    assert done.exit_code == 0, done.stderr


@pytest.fixture(scope="module")
def fsdp1(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders `flat` and `orig` of a trained FSDP1 job with all its checkpoints."""
    folder = tmp_path_factory.mktemp("fsdp1")
    run_module("tests.checkpoint_convert.fsdp_jobs.fsdp1", 2, tmp_path_factory.mktemp("logs"), folder)
    return folder


@pytest.fixture(scope="module")
def converted(fsdp1: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every checkpoint converted, in `<job>/<kind>`."""
    folder = tmp_path_factory.mktemp("converted")
    for job in ("flat", "orig"):
        convert_all(fsdp1 / job, folder / job)
    return folder


@pytest.fixture(scope="module")
def fsdp2(converted: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """What FSDP2 jobs of 1, 2, 3 and 4 ranks made of every converted directory; two ranks train on."""
    folders = {}
    for world_size, cases in WORLDS.items():
        directories = [converted / job / kind for job, kind in cases]
        folders[world_size] = tmp_path_factory.mktemp(f"fsdp2_world{world_size}")
        steps = f"{BEFORE}:{BEFORE + AFTER}" if world_size == 2 else "-"
        job = "tests.checkpoint_convert.fsdp_jobs.fsdp2"
        logs = tmp_path_factory.mktemp("logs")
        run_module(job, world_size, logs, folders[world_size], steps, *directories)
    return folders


@pytest.mark.parametrize(("world_size", "job", "kind"), LOADS)
def test_fsdp2_holds_what_fsdp1_saved(
    fsdp1: Path, fsdp2: dict[int, Path], world_size: int, job: str, kind: str
) -> None:
    truth = torch.load(fsdp1 / job / "truth.pt", weights_only=True)
    weights, state = torch.load(fsdp2[world_size] / f"{job}_{kind}.pt", weights_only=True)["loaded"]
    assert_same(weights, truth["model"])
    assert set(state["state"]) == set(truth["optimizer"]["state"])
    for name, entry in truth["optimizer"]["state"].items():
        assert_same(state["state"][name], entry)
    assert len(state["param_groups"]) == 1
    assert state["param_groups"][0]["lr"] == 0.01
    assert tuple(state["param_groups"][0]["betas"]) == (0.8, 0.9)


@pytest.mark.parametrize(("job", "kind"), [*CASES, *LAYOUT_CASES])
def test_fsdp2_follows_fsdp1_after_resuming(fsdp1: Path, fsdp2: dict[int, Path], job: str, kind: str) -> None:
    for rank in range(2):
        expected = torch.load(fsdp1 / job / f"losses_{rank}.pt", weights_only=True)
        losses = torch.load(fsdp2[2] / f"{job}_{kind}_losses_{rank}.pt", weights_only=True)
        assert len(losses) == AFTER
        assert losses == expected
    end = torch.load(fsdp2[2] / f"{job}_{kind}.pt", weights_only=True)["end"]
    truth = torch.load(fsdp1 / job / "end.pt", weights_only=True)
    assert_same(end, truth)
    saved = torch.load(fsdp1 / job / "truth.pt", weights_only=True)["model"]
    assert not torch.equal(end["embedding.weight"], saved["embedding.weight"]), "nothing was trained"


def test_kinds_agree_on_every_digest(converted: Path) -> None:
    def digests(kind: str) -> dict[str, str]:
        rows = json.loads((converted / "flat" / kind / "conversion.json").read_text())["tensors"]
        return {row["key"]: row["digest"] for row in rows}

    assert len(digests("full")) > 40
    for kind in KINDS[1:]:
        assert digests(kind) == digests("full")


def assert_same(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    """Same names, dtypes and bits."""
    assert set(found) == set(expected)
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype, name
        assert torch.equal(found[name], tensor), name
