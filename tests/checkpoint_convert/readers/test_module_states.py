"""What modules say of themselves (`get_extra_state`) and names given to an optimizer reach the new job."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_optimizer_state_dict,
    set_state_dict,
)
from typer.testing import CliRunner

from checkpoint_convert.optim_state import SavedOptimizer
from checkpoint_convert.readers.holdings import Holding
from checkpoint_convert.readers.parts import part_of
from checkpoint_convert.readers.rank_sets import RankSet
from checkpoint_convert.values import module_state_key
from fsdp_migrate.cli.app import app
from tests.checkpoint_convert.memory_source import MemorySource


class Scaled(torch.nn.Linear):
    """As Transformer Engine's modules: a tensor and a number beside the parameters."""

    def __init__(self) -> None:
        super().__init__(3, 2)
        self.scales: Any = {"amax": torch.zeros(2), "margin": 0}

    def get_extra_state(self) -> Any:
        return self.scales

    def set_extra_state(self, state: Any) -> None:
        self.scales = state


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = Scaled()
        self.last = torch.nn.Linear(2, 1)


def trained() -> tuple[Net, torch.optim.AdamW]:
    net = Net()
    net.first.scales = {"amax": torch.tensor([1.5, 2.5]), "margin": 7}
    optimizer = torch.optim.AdamW(net.named_parameters())
    for parameter in net.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    return net, optimizer


def written(folder: Path, *options: str) -> Path:
    out = folder / "out"
    call = [*map(str, ("convert-ckpt", folder / "x.pt", out)), *options]
    done = CliRunner().invoke(app, call)
    assert done.exit_code == 0, done.stderr
    assert CliRunner().invoke(app, ["verify-ckpt", str(out)]).exit_code == 0
    return out


@pytest.mark.parametrize("container", ["model", "state_dict", None])
def test_a_new_job_loads_both(tmp_path: Path, container: str | None) -> None:
    """Whatever the model is called in the source."""
    net, optimizer = trained()
    model = net.state_dict()
    saved = model if container is None else {container: model, "optimizer": optimizer.state_dict()}
    torch.save(saved, tmp_path / "x.pt")
    out = written(tmp_path, "--to", "dcp")
    fresh = Net()
    again = torch.optim.AdamW(fresh.named_parameters())
    state: dict[str, Any] = {"model": get_model_state_dict(fresh)}
    if container is not None:
        state["optim"] = get_optimizer_state_dict(fresh, again)
        assert "param_names" in state["optim"]["param_groups"][0]
    dcp.load(state, checkpoint_id=out)
    set_state_dict(
        fresh,
        [again] if container is not None else [],
        model_state_dict=state["model"],
        optim_state_dict=state.get("optim", {}),
    )
    assert fresh.first.scales["margin"] == 7
    assert torch.equal(fresh.first.scales["amax"], torch.tensor([1.5, 2.5]))
    if container is not None:
        assert again.state_dict()["param_groups"] == optimizer.state_dict()["param_groups"]


def test_one_file_is_loaded_strictly(tmp_path: Path) -> None:
    net, _ = trained()
    torch.save({"model": net.state_dict(), "epoch": 3}, tmp_path / "x.pt")
    found = torch.load(written(tmp_path, "--to", "torch"), weights_only=True)
    fresh = Net()
    fresh.load_state_dict(found["model"], strict=True)
    assert fresh.first.scales["margin"] == 7 and found["epoch"] == 3


@pytest.mark.parametrize(("options", "kept"), [(["--only", "model"], True), (["--to", "safetensors"], False)])
def test_it_is_of_the_model(tmp_path: Path, options: list[str], kept: bool) -> None:
    net, _ = trained()
    torch.save(net.state_dict(), tmp_path / "x.pt")
    report = json.loads((written(tmp_path, *options) / "conversion.json").read_text())
    keys = [row["key"] for row in (*report["values"], *report["tensors"])]
    of_it = ["model.first._extra_state.margin", "model.first._extra_state.amax"]
    assert [key for key in keys if "_extra_state" in key] == (of_it if kept else [])
    assert bool(report["notices"]) is not kept  # never silently


@pytest.mark.parametrize(("margins", "notices"), [((7, 7), 0), ((7, 8), 1)])
def test_of_ranks_it_is_one(margins: tuple[int, int], notices: int) -> None:
    """Equal extras are kept once, tensors inside of them or not; what a module says is one in any case."""

    def rank(number: int) -> Holding:
        moments = {"exp_avg": MemorySource(torch.ones(2))}
        saved = SavedOptimizer({"w": moments}, [{"params": ["w"]}])
        extras: dict[str, object] = {
            "sampler": {"seen": MemorySource(torch.arange(5)), "at": [1, MemorySource(torch.ones(2))]},
            module_state_key("w._extra_state"): {"amax": MemorySource(torch.ones(2)), "at": margins[number]},
        }
        return Holding(Path(f"rank{number}.pt"), None, saved, extras)

    part = part_of(RankSet("rank*.pt", (rank(0), rank(1)), (0, 1)))
    sampler: Any = part.extras["sampler"]
    assert list(sampler) == ["seen", "at"]
    module: Any = part.extras["model.w._extra_state"]
    assert module["at"] == 7
    assert [notice.code for notice in part.notices] == ["CK102"] * notices
