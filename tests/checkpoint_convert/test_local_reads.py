"""`--shards` and `--mesh`: on load every rank reads the file that was laid out for it, and no other's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner, Result

from fsdp_migrate.cli.app import app
from tests.checkpoint_convert.fsdp_jobs.model import build, loss_of
from tests.ranks import run_module

RANKS = 4
MESHES = {"1x4": ["--shards", "4"], "2x2": ["--mesh", "replicate=2,shard=2"], "4x1": []}
FACTORY = "tests.checkpoint_convert.fsdp_jobs.model:build"
COMMON = "__0_0.distcp"
"""0-dim tensors and plain values; every rank needs them."""


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, [*map(str, arguments)])


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = build()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    loss_of(model, 0, 0).backward()
    optimizer.step()
    path = tmp_path_factory.mktemp("source") / "full.pt"
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
    return path


@pytest.fixture(scope="module")
def read(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Per mesh a converted directory, and what each rank read of it."""
    folder = tmp_path_factory.mktemp("read")
    for shape, options in MESHES.items():
        done = call("convert-ckpt", source, folder / f"d{shape}", "--model", FACTORY, *options)
        assert done.exit_code == 0, done.stderr
    jobs = [f"{shape}={folder / f'd{shape}'}" for shape in MESHES]
    logs = tmp_path_factory.mktemp("logs")
    run_module("tests.checkpoint_convert.fsdp_jobs.local_reads", RANKS, logs, folder, *jobs)
    return folder


@pytest.mark.parametrize("shape", ["1x4", "2x2"])
def test_a_rank_reads_its_own_file_only(read: Path, shape: str) -> None:
    shards = int(shape[-1])
    sizes = {file.name: file.stat().st_size for file in (read / f"d{shape}").glob("*.distcp")}
    assert sorted(sizes) == [COMMON, *(f"__{rank}_1.distcp" for rank in range(shards))]
    for rank in range(RANKS):
        told = json.loads((read / f"{shape}_{rank}.json").read_text())
        own = f"__{told['shard']}_1.distcp"
        assert set(told["read"]) == {own, COMMON, ".metadata"}
        # torch reads an item's zip directory before the item, so a little is read twice.
        assert sizes[own] / 2 < told["read"][own] < 2 * sizes[own]


def test_a_layout_for_other_ranks_is_read_in_part(read: Path) -> None:
    """The count counts: one shard's rank needs all of a directory that is laid out for none."""
    told = json.loads((read / "4x1_0.json").read_text())
    assert set(told["read"]) - {".metadata"} == {file.name for file in (read / "d4x1").glob("*.distcp")}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--mesh", "4"], "'4' is no mesh of FSDP2"),
        (["--mesh", "shard=0"], "'shard=0' is no mesh"),
        (["--mesh", "dp=2,tp=2"], "is no mesh of FSDP2"),
        (["--mesh", "shard=2", "--shards", "2"], "say the same twice"),
    ],
)
def test_meshes_that_cannot_be(source: Path, tmp_path: Path, options: list[str], says: str) -> None:
    done = call("convert-ckpt", source, tmp_path / "out", *options)
    assert done.exit_code == 2
    assert says in done.stderr
    assert not (tmp_path / "out").exists()
