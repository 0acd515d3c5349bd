"""Every kind of file of every FSDP1 job comes out bit for bit as FSDP1 itself gathers it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from comparing import assert_same_model, assert_same_state, bytes_of, load
from fsdp1_jobs import Job, jobs

from checkpoint_convert.errors import LayoutError
from checkpoint_convert.model import Contents, SourceFormat
from checkpoint_convert.readers.open import ReadOptions, open_source

JOBS = {job.name: job for job in jobs()}
WRAP = "zoo:Block,zoo:Mlp,zoo:Adapter"


class Truth:
    """What FSDP1 gathered."""

    def __init__(self, folder: Path) -> None:
        self.model: Mapping[str, torch.Tensor] = load(folder / "truth.pt")
        self.optim: Mapping[str, Any] = load(folder / "truth_optim.pt")

    def check(self, contents: Contents, *, model: bool = True, optim: bool = True) -> None:
        if model:
            assert_same_model(contents, self.model)
        if optim:
            assert_same_state(contents.optimizer, self.optim["state"])
            self._check_groups(contents)
        contents.finish()

    def _check_groups(self, contents: Contents) -> None:
        assert contents.optimizer is not None
        found = contents.optimizer.groups
        assert [set(group.params) for group in found] == [
            set(group["params"]) for group in self.optim["param_groups"]
        ]
        for group, wanted in zip(found, self.optim["param_groups"], strict=True):
            options = {key: value for key, value in wanted.items() if key != "params"}
            if "param_names" in options:
                options["param_names"] = list(group.params)  # FSDP1's have its wrappers' parts in them
            assert dict(group.options) == options


def named_orig(model: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """What `named_parameters()` gives: no buffers."""
    return {name: value for name, value in model.items() if not name.endswith(("scale", "count"))}


@pytest.mark.parametrize("name", JOBS)
def test_full_files(fsdp1_files: Path, name: str) -> None:
    folder, truth = fsdp1_files / name, Truth(fsdp1_files / name)
    with open_source([folder / "truth.pt", folder / "truth_optim.pt"]) as contents:
        truth.check(contents)
        assert contents.format is SourceFormat.FULL
    with open_source([folder / "nested.pt"]) as contents:
        truth.check(contents)
        assert contents.extras == {"epoch": 3, "args": {"lr": 1e-2}}
    # Numbers of a rekeyed state count the unwrapped model's parameters; buffers stand between them.
    options = ReadOptions(model=_factory(JOBS[name]))
    with open_source([folder / "lightning.ckpt"], options) as contents:
        truth.check(contents)
        assert contents.aliases == {"head.weight": "emb.weight"}


def _factory(job: Job) -> str:
    return f"zoo:{job.factory}"


@pytest.mark.parametrize("name", [name for name in JOBS if not name.startswith("channels_last")])
def test_sharded_files_and_dcp(fsdp1_files: Path, name: str) -> None:
    job, folder, truth = JOBS[name], fsdp1_files / name, Truth(fsdp1_files / name)
    with open_source([folder / "sharded_*.pt"]) as contents:
        truth.check(contents)
        if job.world > 1 and job.strategy.name != "NO_SHARD":  # else FSDP1 does not shard at all
            assert contents.format is SourceFormat.SHARDED
        assert contents.extras["step"] == 3
    with open_source([folder / "dcp"]) as contents:
        truth.check(contents)
        assert contents.format is SourceFormat.DCP
        assert contents.loadable_as_is
        assert not contents.notices


@pytest.mark.parametrize("name", [name for name, job in JOBS.items() if job.world > 1 and not job.mesh])
def test_local_files_with_raw_optimizer(fsdp1_files: Path, name: str) -> None:
    job, folder, truth = JOBS[name], fsdp1_files / name, Truth(fsdp1_files / name)
    sources = [folder / "local_*.pt", folder / "optim_raw_*.pt"]
    given = ReadOptions(model=_factory(job), saver_torch="2.13.0", ignored="ign")
    captured = ReadOptions(layout_from=folder / "layout.json")
    for options in (given, captured):
        with open_source(sources, options) as contents:
            truth.check(contents)
            expected = SourceFormat.FULL if job.strategy.name == "NO_SHARD" else SourceFormat.LOCAL
            assert contents.format is expected


@pytest.mark.parametrize("name", ["base_2_flat", "base_3_orig", "hybrid_4_flat", "hybrid_4_orig"])
def test_model_and_raw_optimizer_in_one_file_per_rank(fsdp1_files: Path, name: str) -> None:
    folder, truth = fsdp1_files / name, Truth(fsdp1_files / name)
    with open_source([folder / "both_*.pt"], ReadOptions(layout_from=folder / "layout.json")) as contents:
        truth.check(contents)
        assert contents.extras["epoch"] == 3
        ranks: Any = contents.extras["rng"]
        assert [bytes_of(ranks[rank])[0] for rank in ranks] == list(
            range(len(list(folder.glob("both_*.pt"))))
        )


@pytest.mark.parametrize("name", ["base_3_flat", "base_3_orig"])
def test_local_state_through_dcp(fsdp1_files: Path, name: str) -> None:
    """DCP keeps all of a flat parameter, but of the views beside it only one rank's."""
    folder, truth = fsdp1_files / name, Truth(fsdp1_files / name)
    with open_source([folder / "dcp_local"], ReadOptions(model="zoo:plain")) as contents:
        truth.check(contents, optim=False)
        assert not contents.loadable_as_is
    with pytest.raises(LayoutError, match="flat parameters"), open_source([folder / "dcp_local"]):
        pass


@pytest.mark.parametrize("name", ["base_3_flat", "base_3_orig"])
def test_legacy_optimizer_functions(fsdp1_files: Path, name: str) -> None:
    folder, truth = fsdp1_files / name, Truth(fsdp1_files / name)
    with open_source([folder / "truth.pt", folder / "legacy_sharded_rank*.pt"]) as contents:
        truth.check(contents)
    # FSDP1's default offloading aliases one state to another on CPU: names and sizes only.
    with open_source([folder / "truth.pt", folder / "legacy_full_rank0.pt"]) as contents:
        assert contents.optimizer is not None
        assert set(contents.optimizer.state) == set(truth.optim["state"])


@pytest.mark.parametrize("name", ["base_2_flat", "base_3_orig", "mesh_4_flat"])
def test_two_directories_in_one(fsdp1_files: Path, name: str) -> None:
    folder, truth = fsdp1_files / name / "checkpoint-3", Truth(fsdp1_files / name)
    for sources in (
        [folder],
        [folder / "pytorch_model_fsdp_0", folder / "optimizer_0", folder / "scheduler.bin"],
    ):
        with open_source(sources) as contents:
            truth.check(contents)
            assert contents.format is SourceFormat.DCP
            assert contents.extras == {"last_epoch": 3}


@pytest.mark.parametrize("name", JOBS)
def test_raw_optimizer_alone(fsdp1_files: Path, name: str) -> None:
    job, folder, truth = JOBS[name], fsdp1_files / name, Truth(fsdp1_files / name)
    factory = {"model": _factory(job), "saver_torch": "2.13.0"}
    ways = {
        "captured in the old job": ReadOptions(layout_from=folder / "layout.json"),
        "policy given, ignored module found": ReadOptions(**factory, wrap=WRAP),
        "ignored module given, policy found": ReadOptions(**factory, ignored="zoo:Ignored"),
    }
    for options in ways.values():
        with open_source([folder / "optim_raw_*.pt"], options) as contents:
            truth.check(contents, model=False)


@pytest.mark.parametrize("name", JOBS)
def test_named_parameters_of_each_rank(fsdp1_files: Path, name: str) -> None:
    job, folder, truth = JOBS[name], fsdp1_files / name, Truth(fsdp1_files / name)
    options = ReadOptions(model=_factory(job), saver_torch="2.13.0", ignored="ign")
    with open_source([folder / "named_*.pt"], options) as contents:
        assert_same_model(contents, named_orig(truth.model))
