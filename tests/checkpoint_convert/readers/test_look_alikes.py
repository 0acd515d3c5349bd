"""Checkpoints in the forms of trainers that cannot be installed here, by the keys their sources write."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict, get_optimizer_state_dict

from checkpoint_convert.errors import (
    IncompleteError,
    UnreadableError,
    UnsupportedError,
)
from checkpoint_convert.model import SourceFormat
from checkpoint_convert.readers.open import ReadOptions, open_source
from tests.checkpoint_convert.readers.comparing import assert_same_model, assert_same_state
from tests.checkpoint_convert.readers.refusing import fails

State = dict[str, Any]


def trained() -> tuple[State, State]:
    """A model's and its optimizer's state dicts, by name."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Linear(5, 2))
    optimizer = torch.optim.AdamW(net.parameters())
    net(torch.randn(4, 3)).sum().backward()
    optimizer.step()
    return get_model_state_dict(net), get_optimizer_state_dict(net, optimizer)


def save_dcp(state: State, folder: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.save(state, checkpoint_id=folder)


@pytest.mark.parametrize("is_new", [True, False])
def test_composer_directory(tmp_path: Path, is_new: bool) -> None:
    """`ep0-ba1/`: the optimizers stand in `state`, or before beside it, each under the name of its class."""
    model, optimizer = trained()
    folder = tmp_path / "ep0-ba1"
    held: State = {"model": model, "timestamp": {"Timestamp": {"epoch": 1, "batch": 7}}, "schedulers": {}}
    rest: State = {"rng": {"0": {"python": [3, 1], "torch": torch.arange(9, dtype=torch.uint8)}}}
    (held if is_new else rest)["optimizers"] = {"AdamW": optimizer}
    save_dcp({"state": held, **rest}, folder)
    (folder / "latest.symlink").write_text("ep0-ba1")
    with open_source([folder]) as contents:
        assert contents.format is SourceFormat.DCP and not contents.notices
        assert_same_model(contents, model)
        assert_same_state(contents.optimizer, optimizer["state"])
        found: Any = contents.extras
        assert found["state.timestamp"] == {"Timestamp": {"epoch": 1, "batch": 7}}
        assert found["rng"]["0"]["python"] == [3, 1]


def test_llama_recipes_directory(tmp_path: Path) -> None:
    model, optimizer = trained()
    save_dcp({"model": model, "optim": optimizer}, tmp_path / "fine-tuned-7b")
    (tmp_path / "fine-tuned-7b" / "train_params.yaml").write_text("lr: 1e-4\nmodel_name: llama\n")
    with open_source([tmp_path / "fine-tuned-7b"]) as contents:
        assert_same_model(contents, model)
        assert_same_state(contents.optimizer, optimizer["state"])
        assert not contents.extras


def test_olmo_full_folder(tmp_path: Path) -> None:
    model, optimizer = trained()
    torch.save(model, tmp_path / "model.pt")
    torch.save(optimizer, tmp_path / "optim.pt")
    torch.save({"epoch": 0, "global_step": 12, "rng": {"python": (3, (1, 2), None)}}, tmp_path / "train.pt")
    (tmp_path / "config.yaml").write_text("run_name: tiny\n")
    with open_source([tmp_path]) as contents:
        assert_same_model(contents, model)
        assert_same_state(contents.optimizer, optimizer["state"])
        assert contents.extras["global_step"] == 12


def test_olmo_local_folder_is_refused_by_name(tmp_path: Path) -> None:
    for name in ("model", "optim", "train"):
        (tmp_path / name).mkdir()
    handle = {"flat_param.data": torch.zeros(8), "flat_param._fqns": ["w"], "flat_param._shapes": [(15,)]}
    for rank in range(2):
        torch.save({"modules": [{"name": "", "handles": [handle]}]}, tmp_path / "model" / f"rank{rank}.pt")
        torch.save({"state": {}, "param_groups": []}, tmp_path / "optim" / f"rank{rank}.pt")
    (tmp_path / "metadata.yaml").write_text("world_size: 2\n")
    for path in (tmp_path, tmp_path / "model", tmp_path / "model" / "rank0.pt"):
        assert "unshard.py" in (fails(UnsupportedError, "of OLMo's local checkpoints", [path]).hint or "")


@pytest.mark.parametrize("has_file", [True, False])
def test_folders_that_are_only_named_like_olmos_are_not_taken_for_its(tmp_path: Path, has_file: bool) -> None:
    model, optimizer = trained()
    for name, value in (("model", model), ("optim", optimizer)):
        (tmp_path / name).mkdir()
        torch.save(value, tmp_path / name / "rank0.pt")
    if has_file:
        torch.save(model, tmp_path / "full.pt")
        with open_source([tmp_path]) as contents:
            assert_same_model(contents, model)
        return
    named = fails(UnreadableError, "no checkpoint there", [tmp_path]).hint or ""
    assert str(tmp_path / "model") in named and str(tmp_path / "optim") in named
    with open_source([tmp_path / "model", tmp_path / "optim"]) as contents:
        assert_same_model(contents, model)
        assert_same_state(contents.optimizer, optimizer["state"])


def test_a_torchsnapshot_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / ".snapshot_metadata").write_text("version: 0.1.0\nworld_size: 1\nmanifest:\n  0/w: {}\n")
    (tmp_path / "0").mkdir()
    (tmp_path / "0" / "w").write_bytes(bytes(64))
    for path in (tmp_path, tmp_path / ".snapshot_metadata"):
        assert "torchsnapshot" in (fails(UnsupportedError, "is a torchsnapshot", [path]).hint or "")


UNITS = {  # path of the FSDP unit: parameters that it flattens
    "": {"decoder.embed_tokens.weight": (7, 3), "decoder.layer_norm.bias": (3,)},
    "decoder.layers.0": {"fc1.weight": (5, 3), "fc1.bias": (5,), "fc2.weight": (3, 5)},
    "decoder.layers.1": {"scale": (1,)},
}


def metaseq(folder: Path, world: int, *, part: int = 0, **more: object) -> State:
    """Save shards as metaseq does; returns the whole model."""
    torch.manual_seed(part)
    whole: State = {"decoder.version": torch.tensor([3.0])}
    files: list[State] = [{"decoder.version": whole["decoder.version"]} for _ in range(world)]
    entries: list[list[State]] = [[] for _ in range(world)]
    for path, shapes in UNITS.items():
        lead = f"{path}." if path else ""
        values = {name: torch.randn(shape).half() for name, shape in shapes.items()}
        whole.update({lead + name: value for name, value in values.items()})
        flat = torch.cat([value.reshape(-1) for value in values.values()])
        pieces = list(flat.chunk(world))
        pieces += [flat.new_empty(0)] * (world - len(pieces))
        size = math.ceil(len(flat) / world)
        for rank, piece in enumerate(pieces):
            padding = size - len(piece)
            files[rank][f"{lead}flat_param_0"] = torch.cat([piece, piece.new_full((padding,), 9.0)])
            described = {
                "names": list(shapes),
                "shapes": [torch.Size(shape) for shape in shapes.values()],
                "numels": [math.prod(shape) for shape in shapes.values()],
                "padding": padding,
            }
            shared = [("fc1.bias", "fc1.same")] if path == "decoder.layers.0" else []
            entry = {"fsdp_path": path, "params": {"flat_param_0": described}, "shared_param_info": shared}
            entries[rank].append({**entry, "no_broadcast_optim_state": False})
    whole["decoder.layers.0.fc1.same"] = whole["decoder.layers.0.fc1.bias"]
    for rank, model in enumerate(files):
        metadata = {"param_metadata": entries[rank], "buffer_names": ["decoder.version"]}
        state = {
            "model": model,
            "shard_metadata": metadata,
            "cfg": {"lr": 1},
            "extra_state": {"n": 5},
            **more,
        }
        torch.save(state, folder / f"checkpoint_last-model_part-{part}-shard{rank}.pt")
    return whole


@pytest.mark.parametrize("world", [1, 2, 3, 8])
def test_fairscale_shards(tmp_path: Path, world: int) -> None:
    whole = metaseq(tmp_path, world, last_optimizer_state=None)
    with open_source([tmp_path]) as contents:
        assert_same_model(contents, whole)
        assert contents.world_size == world and contents.optimizer is None
        assert contents.extras == {"cfg": {"lr": 1}, "extra_state": {"n": 5}}


OF_TORCH = {
    "state": {0: {"step": 3, "exp_avg": torch.zeros(12)}},
    "param_groups": [{"params": [0], "lr": 0.1}],
    "loss_scale": 4.0,
}


@pytest.mark.parametrize("state", [{"state": [torch.zeros(4)], "step": 3}, OF_TORCH])
def test_fairscale_optimizer_state_is_refused(tmp_path: Path, state: State) -> None:
    whole = metaseq(tmp_path, 2, last_optimizer_state=state)
    hint = fails(UnsupportedError, "optimizer state in the flat form of fairscale", [tmp_path]).hint or ""
    assert "--only model" in hint
    with open_source([tmp_path], ReadOptions(use_optimizer=False)) as contents:
        assert_same_model(contents, whole)
        assert set(contents.extras) == {"cfg", "extra_state"}


def test_fairscale_shards_that_are_not_all_there(tmp_path: Path) -> None:
    metaseq(tmp_path, 3)
    (tmp_path / "checkpoint_last-model_part-0-shard2.pt").unlink()
    fails(IncompleteError, "the shards of flat_param_0 have 16 elements, its parameters 24", [tmp_path])


def test_model_parallel_parts_are_refused(tmp_path: Path) -> None:
    metaseq(tmp_path, 2)
    metaseq(tmp_path, 2, part=1)
    assert "reshard_mp" in (fails(UnsupportedError, "2 model-parallel parts", [tmp_path]).hint or "")


@pytest.mark.parametrize("damage", ["names", "shapes", "padding", "params", "shared_param_info"])
def test_fairscale_metadata_that_is_damaged(tmp_path: Path, damage: str) -> None:
    metaseq(tmp_path, 1)
    path = next(tmp_path.iterdir())
    state = torch.load(path, weights_only=True)
    entry = state["shard_metadata"]["param_metadata"][1]
    described = entry["params"]["flat_param_0"]
    if damage in entry:
        entry[damage] = [3]
    else:
        described[damage] = {"names": ["fc1.weight"], "shapes": [(-1, 3)] * 3, "padding": 1000}[damage]
    torch.save(state, path)
    fails(UnreadableError, "not built as fairscale|padded by more", [tmp_path])


def test_what_is_in_folders_below_is_read_or_said(tmp_path: Path) -> None:
    """OLMo's sharded checkpoints: `model_and_optim/` beside each rank's `train/rank0.pt`."""
    model, optimizer = trained()
    save_dcp({"model": model, "optim": optimizer}, tmp_path / "model_and_optim")
    (tmp_path / "train").mkdir()
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.txt").write_text("x")
    for rank in range(2):
        torch.save({"epoch": 0, "global_step": 5}, tmp_path / "train" / f"rank{rank}.pt")
    with open_source([tmp_path]) as contents:
        assert_same_model(contents, model)
        (notice,) = contents.notices
        assert notice.code == "CK109" and notice.text.startswith(f"not looked into: {tmp_path / 'train'};")
    for sources in ([tmp_path, tmp_path / "train"], [tmp_path, tmp_path / "train" / "rank*.pt"]):
        with open_source(sources) as contents:
            assert_same_model(contents, model)
            assert contents.extras == {"epoch": 0, "global_step": 5} and not contents.notices


def test_a_folder_of_folders_names_those_with_files(tmp_path: Path) -> None:
    """fairseq2's `model/pp_00/tp_00/sdp_00.pt`."""
    folder = tmp_path / "model" / "pp_00" / "tp_00"
    folder.mkdir(parents=True)
    torch.save(trained()[0], folder / "sdp_00.pt")
    assert str(folder) in (fails(UnreadableError, "no checkpoint there", [tmp_path]).hint or "")
