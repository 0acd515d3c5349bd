"""`--model-key` and `--optim-key`: outputs for loaders that call the parts otherwise."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_optimizer_state_dict,
    set_state_dict,
)
from typer.testing import CliRunner, Result

from fsdp_migrate.cli.app import app

KEYS = ["--model-key", "model_state", "--optim-key", "optimizer"]


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, [*map(str, arguments)])


def trained(seed: int, steps: int = 1) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(20, 30), nn.Linear(30, 7))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01 * seed)
    for _ in range(steps):
        model(torch.randn(4, 20)).sum().backward()
        optimizer.step()
    return model, optimizer


@pytest.fixture
def full(tmp_path: Path) -> Path:
    """A full file; `ema` has tensors as a model has, and `optimizer_scale` a name that begins like a key."""
    model, optimizer = trained(1)
    ema = {name: tensor * 2 for name, tensor in model.state_dict().items()}
    state = {"model": model.state_dict(), "optim": optimizer.state_dict()}
    path = tmp_path / "full.pt"
    torch.save({**state, "ema": ema, "epoch": 3, "optimizer_scale": 2.0}, path)
    return path


def test_dcp_load_into_other_names(full: Path, tmp_path: Path) -> None:
    done = call("convert-ckpt", full, tmp_path / "out", *KEYS, "--against", full, "--format", "json")
    assert done.exit_code == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["against"] == {"equal_tensors": 16}
    assert {row["key"].split(".")[0] for row in report["tensors"]} == {"model_state", "optimizer", "ema"}
    model, optimizer = trained(2, steps=3)
    state = {
        "model_state": get_model_state_dict(model),
        "optimizer": get_optimizer_state_dict(model, optimizer),
    }
    dcp.load(state, checkpoint_id=tmp_path / "out")
    set_state_dict(
        model, optimizer, model_state_dict=state["model_state"], optim_state_dict=state["optimizer"]
    )
    wanted, wanted_optimizer = trained(1)
    for name, tensor in wanted.state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor)
    expected, found = wanted_optimizer.state_dict(), optimizer.state_dict()
    assert found["param_groups"][0]["lr"] == expected["param_groups"][0]["lr"] == 0.01
    for number, entry in expected["state"].items():
        for key, value in entry.items():
            assert torch.equal(found["state"][number][key], value)


def test_one_file_with_other_names(full: Path, tmp_path: Path) -> None:
    done = call("convert-ckpt", full, tmp_path / "out.pt", "--to", "torch", *KEYS)
    assert done.exit_code == 0, done.stderr
    assert "model        4 tensors" in done.stdout and "optimizer    12 tensors" in done.stdout
    found = torch.load(tmp_path / "out.pt", weights_only=True)
    assert set(found) == {"model_state", "optimizer", "ema", "epoch", "optimizer_scale"}
    source = torch.load(full, weights_only=True)
    assert all(torch.equal(found["model_state"][name], value) for name, value in source["model"].items())
    assert all(torch.equal(found["ema"][name], value) for name, value in source["ema"].items())
    assert set(found["optimizer"]) == {"state", "param_groups"}


def test_linked_output_with_other_names(full: Path, tmp_path: Path) -> None:
    call("convert-ckpt", full, tmp_path / "first")
    done = call("convert-ckpt", tmp_path / "first", tmp_path / "second", "--link", *KEYS, "--format", "json")
    assert done.exit_code == 0, done.stderr
    rows = json.loads(done.stdout)["tensors"]
    assert all(row["digest"] is None for row in rows if row["key"].startswith("model_state."))
    state = {"model_state": get_model_state_dict(trained(2)[0])}
    dcp.load(state, checkpoint_id=tmp_path / "second")
    for name, tensor in trained(1)[0].state_dict().items():
        assert torch.equal(state["model_state"][name], tensor)


def test_keys_can_be_exchanged_and_tied_names_follow(tmp_path: Path) -> None:
    weight = torch.randn(3, 4)
    torch.save({"model": {"a": weight, "b": weight}}, tmp_path / "tied.pt")
    keys = ["--model-key", "optim", "--optim-key", "model", "--to", "torch"]
    done = call("convert-ckpt", tmp_path / "tied.pt", tmp_path / "out.pt", *keys)
    assert done.exit_code == 0, done.stderr
    found = torch.load(tmp_path / "out.pt", weights_only=True)["optim"]
    assert torch.equal(found["a"], weight) and found["a"].data_ptr() == found["b"].data_ptr()


def test_something_else_of_that_name_gives_way(full: Path, tmp_path: Path) -> None:
    state = torch.load(full, weights_only=True)
    torch.save({**state, "model_state": "trained"}, full)
    done = call("convert-ckpt", full, tmp_path / "out.pt", "--to", "torch", *KEYS)
    assert done.exit_code == 0, done.stderr
    found = torch.load(tmp_path / "out.pt", weights_only=True)
    assert found["source_model_state"] == "trained"
    assert set(found["model_state"]) == set(state["model"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--model-key", "a.b"], "--model-key: 'a.b' is no top-level key"),
        (["--optim-key", ""], "--optim-key: '' is no top-level key"),
        (["--optim-key", "model"], "cannot both have the key 'model'"),
        (["--model-key", "net", "--to", "safetensors"], "safetensors files have none"),
        (["--layout", "accelerate", "--to", "torch"], "--layout accelerate is a form of DCP directories"),
    ],
)
def test_keys_that_cannot_be(full: Path, tmp_path: Path, options: list[str], message: str) -> None:
    done = call("convert-ckpt", full, tmp_path / "out", *options)
    assert done.exit_code == 2
    assert message in done.stderr
    assert not (tmp_path / "out").exists()


def test_lightning_keeps_everything_else_in_meta_pt(full: Path, tmp_path: Path) -> None:
    done = call("convert-ckpt", full, tmp_path / "out", "--layout", "lightning")
    assert done.exit_code == 0, done.stderr
    meta = torch.load(tmp_path / "out" / "meta.pt", weights_only=True)
    ema = torch.load(full, weights_only=True)["ema"]
    assert {**meta, "ema": None} == {"ema": None, "epoch": 3, "optimizer_scale": 2.0}
    assert all(torch.equal(meta["ema"][name], tensor) for name, tensor in ema.items())


def test_lightning_has_a_meta_pt_even_with_nothing_else(tmp_path: Path) -> None:
    torch.save({"model": trained(1)[0].state_dict()}, tmp_path / "full.pt")
    done = call("convert-ckpt", tmp_path / "full.pt", tmp_path / "out", "--layout", "lightning")
    assert done.exit_code == 0, done.stderr
    assert torch.load(tmp_path / "out" / "meta.pt", weights_only=True) == {}
    assert call("verify-ckpt", tmp_path / "out").exit_code == 0


def test_torchtitan_has_one_place_for_a_buffer_and_an_extra_of_one_name(tmp_path: Path) -> None:
    """The model's names stand at the top, beside everything else."""
    model = {"w": torch.ones(2), "step": torch.tensor(3)}
    torch.save({"model": model, "step": 7}, tmp_path / "full.pt")
    arguments = ["convert-ckpt", tmp_path / "full.pt", tmp_path / "out", "--layout", "torchtitan"]
    done = call(*arguments)
    assert done.exit_code == 2
    assert "two things of the source would get the same key 'step'" in done.stderr
    done = call(*arguments, "--only", "model")
    assert done.exit_code == 0, done.stderr


def test_options_stand_once_per_parameter_in_torchtitans_form_and_all_are_checked(
    full: Path, tmp_path: Path
) -> None:
    """A learning rate that is a tensor too."""
    state = torch.load(full, weights_only=True)
    state["optim"]["param_groups"][0]["lr"] = torch.tensor(0.5)
    torch.save(state, full)
    done = call("convert-ckpt", full, tmp_path / "out", "--layout", "torchtitan")
    assert done.exit_code == 0, done.stderr
    checked = call("verify-ckpt", tmp_path / "out")
    assert checked.exit_code == 0, checked.stdout
    rows = json.loads((tmp_path / "out" / "conversion.json").read_text())
    places = {row["key"]: row.get("at") for row in (*rows["tensors"], *rows["values"])}
    names = list(state["model"])
    for option in ("lr", "eps"):
        wanted = [f"optimizer.param_groups.{name}.{option}" for name in names]
        assert places[f"optimizer.param_groups.0.{option}"] == wanted
    assert places["optimizer.param_groups.0.params"] == []
    path = tmp_path / "out" / ".metadata"
    for option in ("lr", "eps"):
        metadata = pickle.loads(path.read_bytes())
        lost = f"optimizer.param_groups.{names[-1]}.{option}"
        del metadata.state_dict_metadata[lost]
        path.write_bytes(pickle.dumps(metadata))
        checked = call("verify-ckpt", tmp_path / "out")
        assert checked.exit_code == 1 and f"{lost} is gone" in checked.stdout


def test_what_accelerate_has_no_place_for_is_said(full: Path, tmp_path: Path) -> None:
    done = call("convert-ckpt", full, tmp_path / "out", "--layout", "accelerate", "--strict")
    assert done.exit_code == 1
    assert "CK201" in done.stdout and "epoch" in done.stdout
    assert sorted(entry.name for entry in (tmp_path / "out").iterdir()) == [
        "conversion.json",
        "optimizer_0",
        "pytorch_model_fsdp_0",
    ]


@pytest.mark.parametrize("layout", ["torchtitan", "accelerate", "lightning"])
def test_the_form_of_a_loader_is_read_again(full: Path, tmp_path: Path, layout: str) -> None:
    """What was written for one library can be taken to another, model and optimizer."""
    call("convert-ckpt", full, tmp_path / "first", "--layout", layout)
    done = call("convert-ckpt", tmp_path / "first", tmp_path / "second", "--to", "torch")
    assert done.exit_code == 0, done.stderr
    found = torch.load(tmp_path / "second", weights_only=True)
    wanted, optimizer = trained(1)
    assert all(torch.equal(found["model"][name], value) for name, value in wanted.state_dict().items())
    assert {name for name, _ in wanted.named_parameters()} == set(found["optim"]["state"])
    for number, name in enumerate(found["optim"]["state"]):
        for key, value in optimizer.state_dict()["state"][number].items():
            assert torch.equal(found["optim"]["state"][name][key], value)
    assert found["optim"]["param_groups"][0]["lr"] == 0.01
