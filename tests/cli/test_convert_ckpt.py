"""`convert-ckpt` and `inspect-ckpt` at the prompt: what they say, where, and how they exit."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from typer.testing import CliRunner, Result

from fsdp_migrate.cli.app import app
from tests.program import run_program

ROOT = Path(__file__).parents[2]
OLD = ROOT / "tests" / "checkpoint_convert" / "old_torch"


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, [*map(str, arguments)])


def shell(*arguments: object, **changes: object) -> subprocess.CompletedProcess[str]:
    return run_program(*arguments, cwd=ROOT, **changes)


@pytest.fixture
def full(tmp_path: Path) -> Path:
    """A full file of a small model and its AdamW, in the manner of a hand-written loop."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 30), nn.Linear(30, 7))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    model(torch.randn(4, 20)).sum().backward()
    optimizer.step()
    path = tmp_path / "full.pt"
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}, path)
    return path


def loaded(directory: Path) -> dict:
    file = directory.with_suffix(".loaded.pt")
    dcp_to_torch_save(directory, file)
    return torch.load(file, weights_only=False)


def test_the_report_says_what_was_done(full: Path, tmp_path: Path) -> None:
    done = call("convert-ckpt", full, tmp_path / "out")
    assert done.exit_code == 0
    assert "4 tensors" in done.stdout and "12 tensors" in done.stdout and "epoch" in done.stdout
    assert "read back and equal" in done.stdout
    source = torch.load(full, weights_only=True)
    found = loaded(tmp_path / "out")
    for name, tensor in source["model"].items():
        assert torch.equal(found["model"][name], tensor)
    assert found["epoch"] == 3
    assert found["optim"]["param_groups"][0]["lr"] == 0.01


def test_json_goes_to_stdout_and_is_the_file_beside_the_output(full: Path, tmp_path: Path) -> None:
    done = shell("convert-ckpt", full, tmp_path / "out", "--format", "json")
    assert done.returncode == 0
    assert done.stdout == (tmp_path / "out" / "conversion.json").read_text()
    report = json.loads(done.stdout)
    assert report["verified"] is True
    assert len(report["tensors"]) == 16
    first = next(row for row in report["tensors"] if row["key"] == "model.0.bias")
    import xxhash

    tensor = torch.load(full, weights_only=True)["model"]["0.bias"]
    assert first["digest"] == xxhash.xxh3_128(tensor.view(torch.uint8).numpy()).hexdigest()


@pytest.mark.parametrize("form", ["text", "json"])
def test_dry_run_names_every_tensor_and_writes_nothing(full: Path, tmp_path: Path, form: str) -> None:
    done = call("convert-ckpt", full, tmp_path / "out", "--dry-run", "--format", form)
    assert done.exit_code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full.pt"]
    call("convert-ckpt", full, tmp_path / "out")
    actual = sum(path.stat().st_size for path in (tmp_path / "out").glob("*"))
    if form == "json":
        plan = json.loads(done.stdout)
        assert len(plan["tensors"]) == 16
        for file in plan["files"]:
            assert (tmp_path / "out" / file["name"]).stat().st_size == file["size_bytes"]
        assert 0.7 < plan["needed_bytes"] / actual < 1.3
    else:
        assert "model.0.weight  float32 30x20  2.3 KiB  -> __0_1.distcp" in done.stdout
        assert "epoch  value" in done.stdout


def test_neither_torch_nor_numpy_nor_rich_is_imported(full: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "fsdp_migrate", "convert-ckpt"]
    done = subprocess.run(
        [*command, str(full), str(tmp_path / "out")], cwd=ROOT, capture_output=True, text=True, check=True
    )
    imported = {line.rsplit("|", 1)[-1].strip() for line in done.stderr.splitlines()}
    assert "checkpoint_convert.convert" in imported
    assert not imported & {"torch", "numpy", "rich.console", "libcst"}


def test_strict_exits_1_on_a_notice(full: Path, tmp_path: Path) -> None:
    assert call("convert-ckpt", full, tmp_path / "quiet", "--strict").exit_code == 0
    state = torch.load(full, weights_only=True)
    del state["optimizer"]["state"][1]
    torch.save(state, full)
    lax = call("convert-ckpt", full, tmp_path / "lax")
    assert lax.exit_code == 0
    assert "CK212: no optimizer state in the source for 0.bias" in lax.stdout
    strict = call("convert-ckpt", full, tmp_path / "strict", "--strict")
    assert strict.exit_code == 1
    assert (tmp_path / "strict" / ".metadata").exists()
    filled = call("convert-ckpt", full, tmp_path / "filled", "--fill-optim-state")
    assert "filled with zeros" in filled.stdout
    state = loaded(tmp_path / "filled")["optim"]["state"]["0.bias"]
    assert torch.equal(state["exp_avg"], torch.zeros(30)) and state["step"] == 0


def test_dtype_only_and_shards(full: Path, tmp_path: Path) -> None:
    options = ["--dtype", "bfloat16", "--only", "model", "--shards", "2"]
    assert call("convert-ckpt", full, tmp_path / "out", *options).exit_code == 0
    found = loaded(tmp_path / "out")
    assert set(found) == {"model"}
    source = torch.load(full, weights_only=True)["model"]
    assert all(torch.equal(found["model"][name], tensor.bfloat16()) for name, tensor in source.items())
    assert {path.name for path in (tmp_path / "out").glob("*.distcp")} == {"__0_1.distcp", "__1_1.distcp"}
    optim = call("convert-ckpt", full, tmp_path / "optim", "--only", "optim")
    assert optim.exit_code == 0
    assert set(loaded(tmp_path / "optim")) == {"optim"}


@pytest.mark.parametrize("to", ["dcp", "safetensors", "torch"])
def test_an_existing_destination(full: Path, tmp_path: Path, to: str) -> None:
    target = tmp_path / "out"
    target.mkdir()
    (target / ".metadata").write_text("")
    done = call("convert-ckpt", full, target, "--to", to)
    assert done.exit_code == 2
    assert f"error: {target} exists already" in done.stderr
    assert "--overwrite" in done.stderr
    assert done.stdout == ""
    assert [path.name for path in target.iterdir()] == [".metadata"]
    assert call("convert-ckpt", full, target, "--to", to, "--overwrite").exit_code == 0


def test_what_we_wrote_needs_no_converting_but_can_be(full: Path, tmp_path: Path) -> None:
    call("convert-ckpt", full, tmp_path / "first")
    done = call("convert-ckpt", tmp_path / "first", tmp_path / "second")
    assert done.exit_code == 0
    assert "already loadable by FSDP2, nothing to convert" in done.stdout
    assert "--layout" in done.stdout
    assert not (tmp_path / "second").exists()
    as_json = call("convert-ckpt", tmp_path / "first", tmp_path / "second", "--format", "json")
    said = json.loads(as_json.stdout)
    assert said["status"] == "already loadable by FSDP2, nothing to convert"
    assert said["written"] is False and "loadable as it is" in said["reason"]
    done = call("convert-ckpt", tmp_path / "first", tmp_path / "second", "--to", "torch", "--against", full)
    assert done.exit_code == 0
    found = torch.load(tmp_path / "second", weights_only=True)
    source = torch.load(full, weights_only=True)
    assert all(torch.equal(found["model"][name], tensor) for name, tensor in source["model"].items())


@pytest.mark.parametrize("to", ["dcp", "torch", "safetensors"])
def test_a_model_whose_only_child_is_called_module(to: str, tmp_path: Path) -> None:
    """The read-back, and `verify-ckpt` later, take its names for what they are."""
    model = {"module.w": torch.ones(3)}
    optimizer = {
        "state": {"module.w": {"exp_avg": torch.zeros(3)}},
        "param_groups": [{"params": ["module.w"], "lr": 0.1}],
    }
    torch.save({"model": model, "optim": optimizer}, tmp_path / "x.pt")
    done = call("convert-ckpt", tmp_path / "x.pt", tmp_path / "out", "--to", to)
    assert done.exit_code == 0, done.stderr
    assert call("verify-ckpt", tmp_path / "out").exit_code == 0
    if to == "dcp":
        assert set(loaded(tmp_path / "out")["model"]) == {"module.w"}
    torch.save(model, tmp_path / "alone.pt")
    done = call("convert-ckpt", tmp_path / "alone.pt", tmp_path / "alone", "--to", to)
    assert done.exit_code == 0 and "CK106" in done.stdout
    assert call("convert-ckpt", tmp_path / "alone.pt", tmp_path / "b", "--to", to, "--strict").exit_code == 1


def test_against_another_checkpoint(full: Path, tmp_path: Path) -> None:
    state = torch.load(full, weights_only=True)
    state["model"]["1.bias"][3] += 1
    torch.save(state, tmp_path / "other.pt")
    done = call("convert-ckpt", full, tmp_path / "out", "--against", tmp_path / "other.pt")
    assert done.exit_code == 2
    assert "model.1.bias has other values" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "options",
    [
        ["--link"],
        ["--to", "dcp"],
        ["--shards", "1"],
        ["--dtype", "float32"],
        ["--only", "model"],
        ["--tied", "keep"],
        ["--model-key", "model"],
        ["--optim-key", "optim"],
    ],
    ids=lambda options: options[0],
)
def test_what_is_asked_for_is_written_although_the_source_is_loadable(
    full: Path, tmp_path: Path, options: list[str]
) -> None:
    """Even where the option asks for what is there already."""
    call("convert-ckpt", full, tmp_path / "first")
    done = call("convert-ckpt", tmp_path / "first", tmp_path / "second", *options, "--format", "json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["written"] is True
    source = torch.load(full, weights_only=True)["model"]
    found = loaded(tmp_path / "second")["model"]
    assert all(torch.equal(found[name], tensor) for name, tensor in source.items())


@pytest.mark.parametrize(("part", "equal"), [("model", 4), ("optim", 12), (None, 16)])
def test_against_compares_the_part_that_is_written(
    full: Path, tmp_path: Path, part: str | None, equal: int
) -> None:
    """Of a reference that differs in the other part, too."""
    state = torch.load(full, weights_only=True)
    if part == "model":
        state["optimizer"]["state"][0]["exp_avg"] += 1
    elif part == "optim":
        state["model"]["1.bias"] += 1
    torch.save(state, tmp_path / "other.pt")
    only = ["--only", part] if part else []
    asked = ["convert-ckpt", full, tmp_path / "out", *only, "--against", tmp_path / "other.pt"]
    done = call(*asked)
    assert done.exit_code == 0, done.stderr
    assert f"{equal} tensors are equal to the reference's" in done.stdout
    as_json = call(*asked, "--overwrite", "--format", "json")
    assert json.loads(as_json.stdout)["against"] == {"equal_tensors": equal}
    quiet = call("convert-ckpt", full, tmp_path / "quiet", "--format", "json")
    assert json.loads(quiet.stdout)["against"] is None


def test_a_reference_without_the_part_is_no_reference(full: Path, tmp_path: Path) -> None:
    torch.save(torch.load(full, weights_only=True)["model"], tmp_path / "model.pt")
    done = call("convert-ckpt", full, tmp_path / "out", "--only", "optim", "--against", tmp_path / "model.pt")
    assert done.exit_code == 2
    assert "the reference holds nothing to compare with --only optim" in done.stderr
    assert not (tmp_path / "out").exists()


# --- bad input ---


def test_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    for source in (tmp_path / "notes.txt", tmp_path / "absent.pt"):
        done = call("convert-ckpt", source, tmp_path / "out")
        assert done.exit_code == 2
        assert str(source) in done.stderr
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("share", [0.01, 0.3, 0.7, 0.99])
def test_a_truncated_file(full: Path, tmp_path: Path, share: float) -> None:
    data = full.read_bytes()
    full.write_bytes(data[: int(len(data) * share)])
    done = call("convert-ckpt", full, tmp_path / "out")
    assert done.exit_code == 2
    assert "full.pt" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full.pt"]


def test_a_flipped_bit_is_found_by_the_checksum(full: Path, tmp_path: Path) -> None:
    data = bytearray(full.read_bytes())
    tensor = torch.load(full, weights_only=True)["model"]["0.weight"].numpy().tobytes()
    data[data.index(tensor) + 100] ^= 1
    full.write_bytes(data)
    torch.load(full, weights_only=True)  # torch does not notice
    done = call("convert-ckpt", full, tmp_path / "out")
    assert done.exit_code == 2
    assert not (tmp_path / "out").exists()


def test_a_missing_rank(tmp_path: Path) -> None:
    folder = OLD / "torch-2.4.1_world3_flat"
    done = call("convert-ckpt", folder / "sharded_0.pt", folder / "sharded_2.pt", tmp_path / "out")
    assert done.exit_code == 2
    assert "rank 1" in done.stderr
    assert not (tmp_path / "out").exists()


def test_flat_files_without_a_model_say_what_is_needed(tmp_path: Path) -> None:
    folder = OLD / "torch-2.4.1_world3_flat"
    done = call("convert-ckpt", *sorted(folder.glob("local_*.pt")), tmp_path / "out")
    assert done.exit_code == 2
    assert "--model" in done.stderr and "--layout-from" in done.stderr
    looked = call("inspect-ckpt", *sorted(folder.glob("local_*.pt")))
    assert looked.exit_code == 1
    assert "--model" in looked.stdout
    assert "_flat_param" in looked.stdout


# --- old releases, end to end ---


@pytest.mark.parametrize("way", ["copied", "linked"])
@pytest.mark.parametrize(
    "release", ["torch-2.0.1_world3_orig", "torch-2.1.2_world3_flat", "torch-2.4.1_world3_flat"]
)
def test_old_directories_become_loadable(release: str, way: str, tmp_path: Path) -> None:
    options = ["--link"] if way == "linked" else ["--jobs", "2"]
    source, truth_file = OLD / release / "dcp", OLD / release / "truth.pt"
    done = call("convert-ckpt", source, tmp_path / "out", "--against", truth_file, *options)
    assert done.exit_code == 0, done.stderr
    same = {path.name: (tmp_path / "out" / path.name).exists() for path in source.glob("*.distcp")}
    assert ("do not write into those" in done.stdout) == (way == "linked")
    if way == "linked":
        assert all(same.values())
        assert all((tmp_path / "out" / name).read_bytes() == (source / name).read_bytes() for name in same)
    truth = torch.load(OLD / release / "truth.pt", weights_only=True)
    found = loaded(tmp_path / "out")
    assert set(found["model"]) == set(truth)
    assert all(torch.equal(found["model"][name], tensor) for name, tensor in truth.items())
    if "optim" not in found:
        return
    assert "decoupled_weight_decay" in done.stdout
    [group] = found["optim"]["param_groups"]
    assert group["decoupled_weight_decay"] is True
    state = torch.load(OLD / release / "truth_optim.pt", weights_only=True)
    for name, entry in state["state"].items():
        for key, value in entry.items():
            assert torch.equal(found["optim"]["state"][name][key], torch.as_tensor(value))


def test_linking_takes_no_space_and_survives_losing_the_source(tmp_path: Path) -> None:
    from checkpoint_convert.readers.open import open_source

    weights = {f"layers.{number}.weight": torch.randn(64, 33) for number in range(3)}
    group = {
        "lr": 0.1,
        "betas": (0.9, 0.99),
        "eps": 1e-8,
        "weight_decay": 0.1,
        "amsgrad": False,
        "params": [*weights],
    }
    state = {name: {"step": torch.tensor(2.0), "exp_avg": tensor * 2} for name, tensor in weights.items()}
    saved = {"model": weights, "optim": {"state": state, "param_groups": [group]}, "epoch": 4}
    dcp.save(saved, checkpoint_id=tmp_path / "old")
    done = call("convert-ckpt", tmp_path / "old", tmp_path / "new", "--link", "--format", "json")
    assert done.exit_code == 0, done.stderr
    report = json.loads(done.stdout)
    assert sum(file["size_bytes"] for file in report["files"]) < 60_000
    assert all(row["digest"] is None for row in report["tensors"] if row["key"].startswith("model"))
    for path in (tmp_path / "old").iterdir():
        path.unlink()
    found = loaded(tmp_path / "new")
    assert all(torch.equal(found["model"][name], tensor) for name, tensor in weights.items())
    assert all(
        torch.equal(found["optim"]["state"][name]["exp_avg"], state[name]["exp_avg"]) for name in weights
    )
    assert found["optim"]["param_groups"][0]["decoupled_weight_decay"] is True
    assert found["epoch"] == 4
    with open_source([tmp_path / "new"]) as contents:
        assert contents.loadable_as_is


def test_a_linked_directory_can_be_linked_again(tmp_path: Path) -> None:
    """The first conversion's own files are the second one's source: neither writes into the other's."""
    weights = {"a": torch.randn(4, 3), "b": torch.randn(5)}
    state = {"a": {"step": torch.tensor(3.0), "mu_product": torch.tensor(0.5), "exp_avg": torch.ones(4, 3)}}
    groups = [{"lr": 0.1, "params": ["a", "b"]}]
    dcp.save(
        {"model": weights, "optim": {"state": state, "param_groups": groups}}, checkpoint_id=tmp_path / "0"
    )
    for number in (1, 2, 3):
        source, target = tmp_path / str(number - 1), tmp_path / str(number)
        before = {path.name: path.read_bytes() for path in source.iterdir()}
        done = call("convert-ckpt", source, target, "--link", "--fill-optim-state")
        assert done.exit_code == 0, done.stderr
        assert {path.name: path.read_bytes() for path in source.iterdir()} == before
        found = loaded(target)
        assert all(torch.equal(found["model"][name], tensor) for name, tensor in weights.items())
        assert found["optim"]["state"]["a"]["mu_product"] == 0.5
        assert found["optim"]["state"]["b"]["mu_product"] == 0
        assert torch.equal(found["optim"]["state"]["b"]["exp_avg"], torch.zeros(5))


@pytest.mark.parametrize("options", [["--to", "torch"], ["--shards", "2"], []])
def test_link_only_where_nothing_else_changes(full: Path, tmp_path: Path, options: list[str]) -> None:
    done = call("convert-ckpt", full, tmp_path / "out", "--link", *options)
    assert done.exit_code == 2
    assert "--link" in done.stderr
    assert not (tmp_path / "out").exists()


# --- inspect ---


def test_inspect_shows_everything(full: Path) -> None:
    done = call("inspect-ckpt", full)
    assert done.exit_code == 0
    assert "model: 4 tensors, 847 elements" in done.stdout
    assert "0.weight.exp_avg_sq  float32  30 x 20  2.3 KiB" in done.stdout
    assert "AdamW, 4 parameters: lr=0.01" in done.stdout
    assert "epoch: 3" in done.stdout
    record = json.loads(call("inspect-ckpt", full, "--format", "json").stdout)
    assert record["format"] == "full"
    assert {row["name"]: row["shape"] for row in record["model"]}["1.weight"] == [7, 30]
    assert len(record["optimizer"]["state"]) == 12
    assert record["optimizer"]["groups"][0]["optimizer"] == "AdamW"


def test_inspect_runs_nothing_and_names_unknown_classes(tmp_path: Path) -> None:
    import argparse

    torch.save({"model": {"w": torch.ones(2)}, "args": argparse.Namespace(lr=1)}, tmp_path / "x.pt")
    done = call("inspect-ckpt", tmp_path / "x.pt")
    assert "args: object of class argparse.Namespace (not carried over)" in done.stdout
    converted = call("convert-ckpt", tmp_path / "x.pt", tmp_path / "out")
    assert converted.exit_code == 0
    assert "CK201: not in the output: args (an object of class argparse.Namespace)" in converted.stdout


def test_names_cannot_speak_to_the_terminal(tmp_path: Path) -> None:
    torch.save({"model": {"w\x1b]0;pwned\x07": torch.ones(2)}, "\x1b[2J": 1}, tmp_path / "x.pt")
    for command in (["inspect-ckpt"], ["convert-ckpt", "--dry-run"], ["convert-ckpt"]):
        target = [] if command == ["inspect-ckpt"] else [tmp_path / "out"]
        done = call(command[0], tmp_path / "x.pt", *target, *command[1:])
        assert done.exit_code == 0
        assert "\x1b" not in done.stdout
        assert "\\x1b" in done.stdout


def test_inspect_lists_what_cannot_be_put_together(tmp_path: Path) -> None:
    """Two stages, whose optimizers' numbers say nothing of their parameters."""
    for stage in range(2):
        optimizer = {"state": {5: {"exp_avg": torch.ones(2)}}, "param_groups": [{"lr": 0.1, "params": [5]}]}
        saved = {"model": {f"layer{stage}.w": torch.ones(2)}, "optimizer": optimizer}
        torch.save(saved, tmp_path / f"stage_{stage}.pt")
    done = call("inspect-ckpt", tmp_path)
    assert done.exit_code == 1 and "does not number its parameters from 0" in done.stdout
    assert "model.layer1.w" in done.stdout and done.stdout.count("optimizer.state.5.exp_avg") == 2


def test_inspect_says_that_a_directory_is_loadable(tmp_path: Path) -> None:
    dcp.save({"model": {"w": torch.ones(2)}}, checkpoint_id=tmp_path / "dir")
    done = call("inspect-ckpt", tmp_path / "dir")
    assert "already loadable by FSDP2" in done.stdout


# --- progress ---


def test_a_bar_on_a_terminal_only(full: Path, tmp_path: Path) -> None:
    quiet = shell("convert-ckpt", full, tmp_path / "one")
    assert quiet.stderr == ""
    main_end, terminal = pty.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "fsdp_migrate", "convert-ckpt", str(full), str(tmp_path / "two")],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=terminal,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
            timeout=60,
            check=True,
        )
        os.close(terminal)
        shown = os.read(main_end, 1 << 16).decode()
    finally:
        os.close(main_end)
    assert "writing" in shown and "checking" in shown
    assert "KiB" in shown or "bytes" in shown
    assert b"read back and equal" in done.stdout
