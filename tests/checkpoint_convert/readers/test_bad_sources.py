"""What is wrong with a source is said clearly, before anything is written: what, where, what to do."""

from __future__ import annotations

import argparse
import collections
import json
import pickle
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from comparing import assert_same_model, bytes_of, load
from forging import Stored, Tensor, checkpoint
from refusing import fails
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)

from checkpoint_convert.errors import (
    AmbiguousFormatError,
    IncompleteError,
    LayoutError,
    UnreadableError,
    UnsupportedError,
)
from checkpoint_convert.file_bytes import OpenFiles
from checkpoint_convert.model import DType, SourceFormat
from checkpoint_convert.optim_state import SavedOptimizer
from checkpoint_convert.readers.holdings import Holding
from checkpoint_convert.readers.open import ReadOptions, open_source
from checkpoint_convert.readers.parts import part_of
from checkpoint_convert.readers.rank_sets import RankSet
from checkpoint_convert.readers.sharded import OnRanks, merge
from checkpoint_convert.stored_tensor import Storage, StoredTensor
from checkpoint_convert.tensor_sources import MemoryTensor
from checkpoint_convert.torch_objects import DTensorOnRank

ZOO = ReadOptions(model="zoo:plain", ignored="ign")
TINY = ReadOptions(model="tiny_model:TinyModel")


def copied(source: Path, target: Path, pattern: str) -> Path:
    target.mkdir()
    for file in source.glob(pattern):
        shutil.copy(file, target)
    return target


# Ranks


@pytest.mark.parametrize("kind", ["local", "sharded"])
def test_missing_rank(fsdp1_files: Path, tmp_path: Path, kind: str) -> None:
    folder = copied(fsdp1_files / "base_3_flat", tmp_path / "x", f"{kind}_*.pt")
    (folder / f"{kind}_1.pt").unlink()
    fails(IncompleteError, "rank 1 of 3 is missing", [folder], ZOO)
    fails(IncompleteError, "the files of rank 0, 1 of 3 are missing", [folder / f"{kind}_2.pt"], ZOO)


def test_missing_rank_of_a_device_mesh(fsdp1_files: Path, tmp_path: Path) -> None:
    folder = copied(fsdp1_files / "mesh_3_orig", tmp_path / "x", "sharded_*.pt")
    (folder / "sharded_2.pt").unlink()
    fails(IncompleteError, "rank 2 of 3 is missing", [folder])


def test_missing_rank_of_a_raw_optimizer(fsdp1_files: Path, tmp_path: Path) -> None:
    folder = copied(fsdp1_files / "base_3_orig", tmp_path / "x", "optim_raw_*.pt")
    (folder / "optim_raw_1.pt").unlink()
    fails(IncompleteError, "rank 1 of 3 is missing", [folder], ZOO)
    folder = copied(fsdp1_files / "base_3_flat", tmp_path / "y", "*_[012].pt")
    (folder / "optim_raw_2.pt").unlink()
    error = fails(
        IncompleteError, "rank 2 is missing", [folder / "local_*.pt", folder / "optim_raw_*.pt"], ZOO
    )
    assert "optim_raw_0.pt, " in error.message and "of 3 ranks" in error.message
    assert "LOCAL" not in error.hint


@pytest.mark.parametrize("lost", [0, 1])
def test_one_of_two_ranks_of_a_raw_optimizer(fsdp1_files: Path, tmp_path: Path, lost: int) -> None:
    """The one that is left looks like a file that stands alone; the model's files tell that it is not."""
    folder = copied(fsdp1_files / "base_2_flat", tmp_path / "x", "local_*.pt")
    left = folder / f"optim_rank{1 - lost}.pt"
    shutil.copy(fsdp1_files / "base_2_flat" / f"optim_raw_{1 - lost}.pt", left)
    error = fails(IncompleteError, f"file of rank {lost} is missing of the optimizer", [folder], ZOO)
    assert f"found {left}; the model beside it is of 2 ranks" in error.message


@pytest.mark.parametrize(("kind", "options"), [("sharded", None), ("local", TINY)])
def test_one_of_three_ranks_of_a_raw_optimizer(
    kind: str, options: ReadOptions | None, tmp_path: Path
) -> None:
    old = Path(__file__).parents[1] / "old_torch" / "torch-2.4.1_world3_flat"
    folder = copied(old, tmp_path / "x", f"{kind}_*.pt")
    shutil.copy(old / "optim_raw_1.pt", folder)
    fails(IncompleteError, "files of rank 0, 2 are missing of the optimizer", [folder], options)


def test_superfluous_rank(fsdp1_files: Path, tmp_path: Path) -> None:
    folder = copied(fsdp1_files / "base_2_flat", tmp_path / "x", "local_*.pt")
    shutil.copy(fsdp1_files / "base_3_flat" / "local_2.pt", folder)
    fails(IncompleteError, "of a run of 2 ranks, others of 3", [folder], ZOO)
    shutil.copy(folder / "local_1.pt", folder / "local_2.pt")
    fails(IncompleteError, "both are rank 1", [folder], ZOO)


def test_rank_of_another_run(fsdp1_files: Path, tmp_path: Path) -> None:
    folder = copied(fsdp1_files / "base_3_flat", tmp_path / "x", "local_*.pt")
    shutil.copy(fsdp1_files / "base_3_orig" / "local_1.pt", folder)
    fails(IncompleteError, r"has size \(306,\) on one rank and \(315,\) on another", [folder], ZOO)


@pytest.mark.parametrize(("placements", "mesh"), [((0,), (0,)), ((0, None), (2,)), ((0,), (2, 1))])
def test_placements_that_do_not_fit_their_mesh(
    placements: tuple[int | None, ...], mesh: tuple[int, ...]
) -> None:
    local = StoredTensor(Storage(OpenFiles(), Path("rank0.pt"), 0, 8), DType.FLOAT32, (2,), (1,))
    found = OnRanks("w", (0,), (DTensorOnRank((2,), local, placements, mesh, None),))
    with pytest.raises(UnreadableError, match=r"w: is placed as .* on a mesh of size"):
        merge(found, "rank0.pt")


def test_replicated_optimizer_state_that_differs_is_said() -> None:
    def rank(number: int) -> Holding:
        moments = {"exp_avg": MemoryTensor(DType.UINT8, (2,), bytes([number, 7]))}
        saved = SavedOptimizer({"same.w": {"exp_avg": same}, "own.w": moments}, [{"params": ["own.w"]}])
        return Holding(Path(f"rank{number}.pt"), None, saved)

    same = MemoryTensor(DType.UINT8, (2,), b"ab")
    part = part_of(RankSet("rank*.pt", (rank(0), rank(1)), (0, 1)))
    assert part.optimizer is not None
    assert bytes_of(part.optimizer.state["own.w"]["exp_avg"]) == bytes([0, 7])
    [notice] = part.notices
    assert notice.text.startswith("rank*.pt: optimizer state own.w.exp_avg differ between ranks")


def test_optimizers_of_different_moments(fsdp1_files: Path, tmp_path: Path) -> None:
    folder = copied(fsdp1_files / "base_3_flat", tmp_path / "x", "*_[012].pt")
    path = folder / "optim_raw_1.pt"
    saved = torch.load(path, weights_only=True)
    for entry in saved["state"].values():
        entry["step"] = torch.tensor(9.0)
    torch.save(saved, path)
    fails(
        IncompleteError,
        r"step is 3\.0 on rank 0 and 9\.0 on rank 1",
        [folder / "local_*.pt", folder / "optim_raw_*.pt"],
        ZOO,
    )


def test_replicas_that_disagree(fsdp1_files: Path, tmp_path: Path) -> None:
    folder = copied(fsdp1_files / "hybrid_4_orig", tmp_path / "x", "*.pt")
    path = folder / "optim_raw_3.pt"
    saved = torch.load(path, weights_only=True)
    next(value for entry in saved["state"].values() for value in entry.values() if value.numel() > 2)[0] += 1
    torch.save(saved, path)
    fails(
        IncompleteError,
        "should be replicas",
        [folder / "optim_raw_*.pt"],
        ReadOptions(layout_from=fsdp1_files / "hybrid_4_orig" / "layout.json"),
    )
    mesh = copied(fsdp1_files / "mesh_4_flat", tmp_path / "y", "sharded_*.pt")
    path = mesh / "sharded_3.pt"
    data = bytearray(path.read_bytes())
    changed = _change_a_tensor(bytes(data))
    path.write_bytes(changed)
    fails(IncompleteError, "two ranks hold different elements", [mesh])


def _change_a_tensor(data: bytes) -> bytes:
    """The same archive with one storage's bytes, and its checksum, changed."""
    import io
    import zipfile

    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as new:
        for name in old.namelist():
            content = old.read(name)
            if re.search(r"/data/\d+$", name) and len(content) >= 40:
                content = bytes([content[0] ^ 1]) + content[1:]
            new.writestr(name, content)
    return out.getvalue()


def test_first_replica_is_enough(fsdp1_files: Path, tmp_path: Path) -> None:
    truth = load(fsdp1_files / "mesh_4_flat" / "truth.pt")
    folder = copied(fsdp1_files / "mesh_4_flat", tmp_path / "x", "sharded_[01].pt")
    with open_source([folder]) as contents:
        assert_same_model(contents, truth)


# Files


def test_truncated_rank_file(fsdp1_files: Path, tmp_path: Path) -> None:
    folder = copied(fsdp1_files / "base_3_flat", tmp_path / "x", "local_*.pt")
    path = folder / "local_1.pt"
    path.write_bytes(path.read_bytes()[:-300])
    error = fails(UnreadableError, "missing|ends at byte", [folder], ZOO)
    assert str(path) in error.message and re.search(r"byte \d+", error.message)


def test_no_checkpoint_at_all(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("nothing to see")
    fails(UnreadableError, "is no checkpoint: it begins with b'nothing '", [text])
    fails(UnreadableError, "no checkpoint there", [tmp_path])
    fails(UnreadableError, "no such file or directory", [tmp_path / "gone.pt"])
    fails(UnreadableError, "matches no file", [tmp_path / "*.pt"])
    (tmp_path / "empty.pt").touch()
    fails(UnreadableError, "empty", [tmp_path / "empty.pt"])
    (tmp_path / "fake.pt").write_text("this is text")
    fails(UnreadableError, r"fake\.pt: is a text file, no checkpoint", [tmp_path / "fake.pt"])
    (tmp_path / "fake.pt").write_text("es ist nur ein Text über Gewichte\n" * 300, encoding="utf-8")
    fails(UnreadableError, r"fake\.pt: is a text file, no checkpoint", [tmp_path / "fake.pt"])
    (tmp_path / "fake.pt").write_bytes(b"this is no text\x00\x01")
    fails(UnreadableError, "not a readable pickle at byte", [tmp_path / "fake.pt"])
    (tmp_path / "fake.pt").write_bytes(pickle.dumps({"w": 1}, protocol=0))
    fails(UnreadableError, "neither a model nor an optimizer", [tmp_path / "fake.pt"])
    torch.save([1, 2, 3], tmp_path / "list.pt")
    fails(UnreadableError, "neither a model nor an optimizer", [tmp_path / "list.pt"])


def test_distributed_checkpoint_without_its_metadata(tmp_path: Path) -> None:
    folder = tmp_path / "run" / "step_5"
    dcp.save({"model": {"w": torch.zeros(3)}}, checkpoint_id=folder)
    (folder / ".metadata").unlink()
    for given in (folder, folder / "__0_0.distcp", folder.parent):
        error = fails(UnreadableError, r"step_5: its \.metadata is missing", [given])
        assert "written last" in error.hint
    torch.save({"w": torch.zeros(3)}, folder / "rng.pt")  # does not make it a checkpoint of its own
    fails(UnreadableError, r"step_5: its \.metadata is missing", [folder])


def test_deepspeed_is_named(tmp_path: Path) -> None:
    (tmp_path / "zero_pp_rank_0_mp_rank_00_optim_states.pt").write_bytes(b"PK\x03\x04")
    fails(UnsupportedError, "DeepSpeed", [tmp_path])
    torch.save({"module": {"w": torch.zeros(2)}, "ds_version": "0.14"}, tmp_path.parent / "ds.pt")
    fails(UnsupportedError, "DeepSpeed", [tmp_path.parent / "ds.pt"])


def test_two_candidates(fsdp1_files: Path, tmp_path: Path) -> None:
    folder = fsdp1_files / "base_3_flat"
    sources = [folder / "truth.pt", folder / "sharded_*.pt"]
    error = fails(AmbiguousFormatError, r"truth\.pt \(full\) and .*sharded_\*\.pt \(sharded\)", sources)
    assert "--from full" in error.hint and "--from sharded" in error.hint
    for wanted in (SourceFormat.FULL, SourceFormat.SHARDED):
        with open_source(sources, ReadOptions(format=wanted)) as contents:
            assert contents.format is wanted
    torch.save({"a": {"w": torch.zeros(2)}, "b": {"w": torch.ones(2)}}, tmp_path / "two.pt")
    fails(AmbiguousFormatError, "more than one part could be the model: a, b", [tmp_path / "two.pt"])
    optimizer = {"state": {}, "param_groups": [{"params": [0]}]}
    torch.save({"g": optimizer, "d": optimizer}, tmp_path / "gan.pt")
    fails(AmbiguousFormatError, "holds 2 optimizers: g, d", [tmp_path / "gan.pt"])


def test_steps_of_one_run_are_not_ranks(tmp_path: Path) -> None:
    for step in (1, 2):
        torch.save(
            {"w": torch.full((4, 3), float(step)), "b": torch.full((2, 2), float(step))},
            tmp_path / f"step_{step}.pt",
        )
    fails(AmbiguousFormatError, "2 whole checkpoints that differ", [tmp_path])


def test_plain_slices_are_not_guessed_at(tmp_path: Path) -> None:
    for rank in (0, 1):
        torch.save(
            {"w": torch.zeros(3 - rank, 4), "b": torch.full((2,), rank)}, tmp_path / f"model_rank_{rank}.pt"
        )
    fails(UnsupportedError, "plain slices", [tmp_path])


# Layouts


def test_flat_files_without_a_model_say_what_to_give(fsdp1_files: Path) -> None:
    folder = fsdp1_files / "base_3_flat"
    error = fails(LayoutError, "flat parameters, which do not tell", [folder / "local_*.pt"])
    assert "--model" in error.hint and "--layout-from" in error.hint
    error = fails(
        LayoutError,
        "is kept by parameter numbers, which do not tell the parameters' names",
        [folder / "optim_raw_*.pt"],
    )
    assert "--model" in error.hint


@pytest.mark.parametrize("name", ["base_3_flat", "base_3_orig", "half_3_orig"])
def test_wrong_model(fsdp1_files: Path, name: str) -> None:
    folder = fsdp1_files / name
    error = fails(
        LayoutError, r"flat parameters are those of|has no|no such parameter", [folder / "local_*.pt"], TINY
    )
    assert "model" in error.hint
    fails(LayoutError, "optimizer does not fit the model", [folder / "optim_raw_*.pt"], TINY)


def test_bad_factories_and_layouts(fsdp1_files: Path, tmp_path: Path) -> None:
    local = [fsdp1_files / "base_3_flat" / "local_*.pt"]
    fails(LayoutError, "written pkg.module:name", local, ReadOptions(model="zoo.plain"))
    fails(LayoutError, "cannot be imported", local, ReadOptions(model="no_such_module:x"))
    error = fails(LayoutError, "not by its file", local, ReadOptions(model="models/zoo.py:plain"))
    assert "/models it is zoo:plain; from elsewhere set PYTHONPATH" in error.hint
    error = fails(LayoutError, "module zoo has no 'plian'", local, ReadOptions(model="zoo:plian"))
    assert error.hint.startswith("Did you mean plain")
    error = fails(LayoutError, "cannot be imported", local, ReadOptions(model="zoo:qqqqqqqq"))
    assert error.hint.startswith("Defined there: ") and "PYTHONPATH" not in error.hint
    fails(LayoutError, "meta device failed: TypeError", local, ReadOptions(model="zoo:build"))
    fails(LayoutError, "returns a dict", local, ReadOptions(model="builtins:dict"))
    fails(
        LayoutError,
        "no module of class zoo:Nothing",
        local,
        ReadOptions(model="zoo:plain", wrap="zoo:Nothing,zoo:Mlp"),
    )
    layout = tmp_path / "layout.json"
    fails(LayoutError, "No such file", local, ReadOptions(layout_from=layout))
    layout.write_text("{}")
    fails(LayoutError, "is no fsdp-migrate layout", local, ReadOptions(layout_from=layout))
    layout.write_text("[" * 100_000)
    fails(LayoutError, "is no layout", local, ReadOptions(layout_from=layout))
    document = json.loads((fsdp1_files / "base_3_flat" / "layout.json").read_text())
    document["parameters"][0]["shape"] = [-5]
    layout.write_text(json.dumps(document))
    fails(LayoutError, "has shape", local, ReadOptions(layout_from=layout))


def test_non_contiguous_parameters_need_the_savers_torch(fsdp1_files: Path) -> None:
    folder = fsdp1_files / "channels_last_3_flat"
    options = ReadOptions(model="zoo:channels_last", ignored="ign")
    error = fails(LayoutError, r"conv\.weight is not contiguous", [folder / "local_*.pt"], options)
    assert "--saver-torch" in error.hint
    older = ReadOptions(model="zoo:channels_last", ignored="ign", saver_torch="2.5.1")
    with open_source([folder / "local_*.pt"], older) as contents:
        # Read as torch 2.5 would have written it: the same elements in another order.
        found = bytes_of(contents.model["conv.weight"])
        expected = load(folder / "truth.pt")["conv.weight"]
        assert found == expected.permute(0, 2, 3, 1).contiguous().numpy().tobytes()


def test_groups_that_do_not_fit(fsdp1_files: Path) -> None:
    folder = fsdp1_files / "groups_3_orig"
    names = [
        name for group in json.loads((folder / "layout.json").read_text())["param_groups"] for name in group
    ]
    sources = [folder / "local_*.pt", folder / "optim_raw_*.pt"]
    wrong = ReadOptions(model="zoo:plain", param_groups=[names[::-1]])
    fails(LayoutError, "optimizer does not fit", sources, wrong)
    unknown = ReadOptions(model="zoo:plain", param_groups=[["nobody"]])
    fails(LayoutError, "name nobody, which is no parameter", sources, unknown)


def test_a_policy_that_cannot_be_told(tmp_path: Path) -> None:
    """No state, so no sizes: any policy fits the numbers of use_orig_params=False at one unit."""
    saved = {"state": {0: {"exp_avg": torch.zeros(4), "step": 1}, 1: {"exp_avg": torch.zeros(4), "step": 1}}}
    for rank in (0, 1):
        torch.save(
            {**saved, "param_groups": [{"params": [0, 1], "lr": 1e-3}]}, tmp_path / f"optim_rank_{rank}.pt"
        )
    options = ReadOptions(model="test_bad_sources:two_ways")
    error = fails(LayoutError, "fit more than one job", [tmp_path], options)
    assert "--wrap" in error.hint


class One(torch.nn.Linear):
    """Of four elements, or wrapped alone."""


class Two(torch.nn.Linear):
    """The same size again."""


def two_ways() -> torch.nn.Module:
    """Wrapping either layer gives two flat parameters of eight elements, in another order."""
    return torch.nn.Sequential(One(4, 2, bias=False, device="meta"), Two(4, 2, bias=False, device="meta"))


# Optimizers


def optimizer_file(path: Path, **state: Any) -> list[Path]:
    saved = {"state": {"w": state}, "param_groups": [{"params": ["w"], "lr": 1e-3}]}
    torch.save({"model": {"w": torch.zeros(4, 6)}, "optimizer": saved}, path)
    return [path]


def test_eight_bit_states_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    state = torch.zeros(4, 6, dtype=torch.uint8)
    fails(
        UnsupportedError, r"optimizer state w\.state1 is part of an 8-bit", optimizer_file(path, state1=state)
    )
    fails(UnsupportedError, r"w\.absmax1 is part", optimizer_file(path, absmax1=torch.zeros(1)))
    with open_source([path], ReadOptions(use_optimizer=False)) as contents:
        assert contents.optimizer is None and set(contents.model) == {"w"}


def test_a_state_that_is_an_object_is_refused(tmp_path: Path) -> None:
    paths = optimizer_file(tmp_path / "x.pt", history=argparse.Namespace(lr=1))
    fails(UnsupportedError, r"state w\.history is an object of class argparse\.Namespace", paths)


_OptimStateKey = collections.namedtuple("_OptimStateKey", ["unflat_param_names", "is_fsdp_managed"])


def test_state_flattened_for_one_job_is_refused(tmp_path: Path) -> None:
    key = _OptimStateKey(("a", "b"), True)
    torch.save({"state": {key: {"exp_avg": torch.zeros(4)}}, "param_groups": []}, tmp_path / "x.pt")
    fails(UnsupportedError, "flattened for one job", [tmp_path / "x.pt"])


def test_a_model_of_one_module_called_state_is_no_optimizer(tmp_path: Path) -> None:
    """Its names begin as those of an optimizer's state that was flattened by name, which has groups."""
    torch.save({"state.layer.weight": torch.ones(2, 3), "state.layer.bias": torch.ones(2)}, tmp_path / "x.pt")
    with open_source([tmp_path / "x.pt"]) as contents:
        assert set(contents.model) == {"state.layer.weight", "state.layer.bias"}
        assert contents.optimizer is None


def test_state_of_another_size(tmp_path: Path) -> None:
    paths = optimizer_file(tmp_path / "x.pt", exp_avg=torch.zeros(4, 5))
    fails(LayoutError, r"state w\.exp_avg has size \(4, 5\), its parameter \(4, 6\)", paths)


def test_optimizer_of_another_model(tmp_path: Path) -> None:
    torch.save({"w": torch.zeros(2)}, tmp_path / "model.pt")
    saved = {"state": {"v": {"exp_avg": torch.zeros(2)}}, "param_groups": [{"params": ["v"]}]}
    torch.save(saved, tmp_path / "optim.pt")
    fails(
        LayoutError, "knows a parameter v, the model does not", [tmp_path / "model.pt", tmp_path / "optim.pt"]
    )


def test_steps_become_tensors_of_their_own(tmp_path: Path) -> None:
    shared = torch.tensor(7.0)
    state = {
        name: {"step": step, "exp_avg": torch.zeros(2)}
        for name, step in (("a", shared), ("b", shared), ("c", 7), ("d", torch.tensor([7.0])))
    }
    saved = {"state": state, "param_groups": [{"params": list(state)}]}
    torch.save({"model": {name: torch.zeros(2) for name in state}, "optimizer": saved}, tmp_path / "x.pt")
    with open_source([tmp_path / "x.pt"]) as contents:
        assert contents.optimizer is not None
        steps: list[Any] = [entry["step"] for entry in contents.optimizer.state.values()]
        assert {(step.shape, bytes_of(step)) for step in steps} == {((), shared.numpy().tobytes())}
        assert len({id(step) for step in steps}) == 4


# Distributed checkpoints


@pytest.fixture
def dcp_folder(tmp_path: Path) -> Path:
    """A small one, made without processes."""
    folder = tmp_path / "dcp"
    dcp.save(
        {"model": {"w": torch.arange(12.0), "n.b": torch.ones(3)}, "epoch": 3},
        checkpoint_id=folder,
    )
    return folder


def rewritten(folder: Path, change: Callable[[Metadata], None]) -> list[Path]:
    """The folder with its metadata changed."""
    path = folder / ".metadata"
    metadata = pickle.loads(path.read_bytes())
    change(metadata)
    path.write_bytes(pickle.dumps(metadata))
    return [folder]


def test_the_folder_itself_is_fine(dcp_folder: Path) -> None:
    for given in (dcp_folder, dcp_folder / ".metadata", dcp_folder / "__0_0.distcp"):
        with open_source([given]) as contents:
            assert bytes_of(contents.model["w"]) == torch.arange(12.0).numpy().tobytes()
            assert contents.extras == {"epoch": 3}


def test_metadata_is_not_executed(dcp_folder: Path, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    command = f"touch {canary}"
    path = dcp_folder / ".metadata"
    whole = path.read_bytes()
    path.write_bytes(b"cos\nsystem\n(V" + command.encode() + b"\ntR.")
    fails(UnreadableError, "no metadata of torch", [dcp_folder])
    assert whole.startswith(b"\x80")
    path.write_bytes(b"cos\nsystem\n(V" + command.encode() + b"\ntR0" + whole[2:])
    with open_source([dcp_folder]) as contents:
        assert set(contents.model) == {"w", "n.b"}
    assert not canary.exists()


def test_objects_in_a_dcp_are_not_executed(dcp_folder: Path, tmp_path: Path) -> None:
    canary = tmp_path / "canary"

    class Evil:
        def __reduce__(self) -> Any:
            import os

            return os.system, (f"touch {canary}",)

    item = dcp_folder / "__9_0.distcp"
    torch.save(Evil(), item)

    def change(metadata: Metadata) -> None:
        metadata.state_dict_metadata["evil"] = BytesStorageMetadata()
        metadata.planner_data["evil"] = ("evil",)
        info = next(iter(metadata.storage_data.values()))
        metadata.storage_data[MetadataIndex("evil")] = type(info)(item.name, 0, item.stat().st_size)

    with open_source(rewritten(dcp_folder, change)) as contents:
        assert any("system" in notice.text for notice in contents.notices)
    assert not canary.exists()


@pytest.mark.parametrize("target", ["../outside.distcp", "/etc/passwd", "a/../../b", "..", "", "a\\..\\b"])
def test_paths_stay_inside(dcp_folder: Path, target: str) -> None:
    def change(metadata: Metadata) -> None:
        for info in metadata.storage_data.values():
            info.relative_path = target

    fails(UnreadableError, "outside the checkpoint's directory|no file", rewritten(dcp_folder, change))


def test_missing_and_short_files(dcp_folder: Path) -> None:
    path = dcp_folder / "__0_0.distcp"
    data = path.read_bytes()
    path.write_bytes(data[:-100])
    error = fails(UnreadableError, "where .metadata places items up to byte", [dcp_folder])
    assert str(path) in error.message
    path.unlink()
    fails(IncompleteError, "is missing, although .metadata lists it", [dcp_folder])


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        (("model",) * 101, "the path of epoch is no row of names and positions"),
        (("model", ("w",)), "the path of epoch is no row of names and positions"),
        (("model", "w"), "lies where another value lies already"),
        (("model",), "lies where another value lies already"),
        (("model", "w", "x"), "lies inside another value"),
    ],
)
def test_values_that_lie_in_each_other(dcp_folder: Path, path: tuple[Any, ...], reason: str) -> None:
    def moved(metadata: Metadata) -> None:
        metadata.planner_data["epoch"] = path

    fails(UnreadableError, reason, rewritten(dcp_folder, moved))


def test_an_item_that_is_no_archive(dcp_folder: Path) -> None:
    """Its file may begin with something that is one, or is a pickle."""

    def shifted(metadata: Metadata) -> None:
        info = metadata.storage_data[MetadataIndex("epoch")]
        info.offset, info.length = info.offset + 1, info.length - 1

    fails(UnreadableError, "is no archive that torch.save wrote", rewritten(dcp_folder, shifted))


def test_chunks_that_do_not_cover(dcp_folder: Path) -> None:
    def shorter(metadata: Metadata) -> None:
        metadata.state_dict_metadata["model.w"].chunks[0].sizes = torch.Size([9])

    fails(IncompleteError, "hold 9 of 12 elements", rewritten(dcp_folder, shorter))


def test_chunk_of_another_size_than_promised(dcp_folder: Path) -> None:
    def longer(metadata: Metadata) -> None:
        entry = metadata.state_dict_metadata["model.w"]
        entry.size = torch.Size([13])
        entry.chunks[0].sizes = torch.Size([13])

    with (
        open_source(rewritten(dcp_folder, longer)) as contents,
        pytest.raises(UnreadableError, match=r"not the chunk of model\.w"),
    ):
        bytes_of(contents.model["w"])


def test_a_chunk_that_lies_nowhere(dcp_folder: Path) -> None:
    def lost(metadata: Metadata) -> None:
        for index in [index for index in metadata.storage_data if index.fqn == "model.w"]:
            del metadata.storage_data[index]

    fails(IncompleteError, r"where the chunk of model\.w at \(0,\) lies", rewritten(dcp_folder, lost))


def test_chunks_that_overlap(dcp_folder: Path) -> None:
    def doubled(metadata: Metadata) -> None:
        entry = TensorStorageMetadata(
            TensorProperties(),
            torch.Size([4]),
            [ChunkStorageMetadata(torch.Size([at]), torch.Size([2])) for at in (0, 1)],
        )
        metadata.state_dict_metadata["model.x"] = entry
        info = next(iter(metadata.storage_data.values()))
        for at in (0, 1):
            metadata.storage_data[MetadataIndex("model.x", [at])] = info

    fails(IncompleteError, "overlap", rewritten(dcp_folder, doubled))


def test_raw_optimizer_through_dcp_is_lost(tmp_path: Path) -> None:
    state = {0: {"exp_avg": torch.zeros(5), "step": torch.tensor(1.0)}}
    saved = {
        "model": {"w": torch.zeros(10)},
        "optim": {"state": state, "param_groups": [{"params": [0], "lr": 1.0}]},
    }
    dcp.save(saved, checkpoint_id=tmp_path / "x")
    error = fails(UnsupportedError, "only one rank's part was ever written", [tmp_path / "x"])
    assert "--only model" in error.hint
    with open_source([tmp_path / "x"], ReadOptions(use_optimizer=False)) as contents:
        assert set(contents.model) == {"w"}


# Safetensors


def test_safetensors(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    tensors = {
        "a": torch.arange(6.0).view(2, 3),
        "b": torch.tensor(3, dtype=torch.int64),
        "c": torch.zeros(0, 2),
    }
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with open_source([tmp_path]) as contents:
        assert contents.format is SourceFormat.SAFETENSORS
        assert_same_model(contents, tensors)
    data = (tmp_path / "model.safetensors").read_bytes()
    for length in (0, 5, 50, len(data) - 1):
        (tmp_path / "cut.safetensors").write_bytes(data[:length])
        fails(UnreadableError, "not a whole safetensors file", [tmp_path / "cut.safetensors"])
    places = {
        name: {"dtype": "F32", "shape": [2], "data_offsets": [at, at + 8]}
        for name, at in (("a", 0), ("b", 4))
    }
    bad = json.dumps(places).encode()
    (tmp_path / "bad.safetensors").write_bytes(len(bad).to_bytes(8, "little") + bad + bytes(12))
    fails(UnreadableError, "overlap", [tmp_path / "bad.safetensors"])


def test_a_safetensors_tensor_named_as_a_field_is(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    tensors = {"data_offsets": torch.arange(3.0), "shape": torch.ones(2, 2), "dtype": torch.zeros(1)}
    save_file(tensors, tmp_path / "x.safetensors")
    with open_source([tmp_path / "x.safetensors"]) as contents:
        assert_same_model(contents, tensors)


def test_sharded_safetensors(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    save_file({"a": torch.ones(2)}, tmp_path / "model-00001-of-00002.safetensors")
    save_file({"b": torch.zeros(2)}, tmp_path / "model-00002-of-00002.safetensors")
    index = tmp_path / "model.safetensors.index.json"
    files = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    index.write_text(json.dumps({"weight_map": files}))
    for given in (tmp_path, index):
        with open_source([given]) as contents:
            assert set(contents.model) == {"a", "b"}
    index.write_text(json.dumps({"weight_map": {**files, "c": "../../etc/passwd"}}))
    fails(UnreadableError, "outside its directory", [index])
    index.write_text(json.dumps({"weight_map": files}))
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    fails(IncompleteError, "is missing", [index])


# Objects


@pytest.mark.parametrize("new_format", [True, False])
def test_a_whole_module_is_told_as_one(tmp_path: Path, new_format: bool) -> None:
    """Also among others, and in the older format, which keeps the source text of its class beside it."""
    module = torch.nn.Sequential(torch.nn.Linear(2, 2))
    for name, value in (("alone.pt", module), ("within.pt", {"model": module, "epoch": 1})):
        torch.save(value, tmp_path / name, _use_new_zipfile_serialization=new_format)
        error = fails(UnsupportedError, r"object of class torch\.nn\.\S+\.Sequential", [tmp_path / name])
        assert ".state_dict()" in error.hint


def test_state_of_all_parameters_together_is_refused(tmp_path: Path) -> None:
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.LBFGS(model.parameters())

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(torch.ones(1, 2)).square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    torch.save({"model": model.state_dict(), "optim": optimizer.state_dict()}, tmp_path / "x.pt")
    error = fails(UnsupportedError, "is state of LBFGS", [tmp_path / "x.pt"])
    assert "--only model" in error.hint


def test_a_chunk_that_is_lazily_conjugated_is_told_as_one(tmp_path: Path) -> None:
    """Its directory is not damaged: torch wrote it so."""
    lazy = torch.ones(2, dtype=torch.complex64).conj()
    dcp.save({"model": {"w": lazy, "v": torch.ones(2)}}, checkpoint_id=tmp_path / "x")
    with (
        open_source([tmp_path / "x"]) as contents,
        pytest.raises(UnsupportedError, match="w is a lazily conjugated"),
    ):
        bytes_of(contents.model["w"])


# Names


@pytest.mark.parametrize(
    "prefix",
    [
        "_orig_mod.",
        "_forward_module.",
        "_fsdp_wrapped_module._fpw_module.",
        "_forward_module._orig_mod.",
        "_checkpoint_wrapped_module.",
    ],
)
def test_wrapper_prefixes_are_taken_off(tmp_path: Path, prefix: str) -> None:
    names = ["layer.weight", "module.weight", "head.bias"]
    inner = "layer._checkpoint_wrapped_module._fsdp_wrapped_module.weight"
    model = {f"{prefix}{name}": torch.zeros(2) for name in [*names[1:], inner]}
    saved = {
        "state": {name: {"exp_avg": torch.zeros(2)} for name in model},
        "param_groups": [{"params": list(model)}],
    }
    torch.save({"model": model, "optimizer": saved}, tmp_path / "x.pt")
    with open_source([tmp_path / "x.pt"]) as contents:
        assert set(contents.model) == set(names)
        assert contents.optimizer is not None and set(contents.optimizer.state) == set(names)


class Inner(torch.nn.Module):
    """A model whose one child is called `module`, as a DistributedDataParallel's is."""

    def __init__(self) -> None:
        super().__init__()
        self.module = torch.nn.Linear(2, 2)


NAMES = {"weight": torch.zeros(2, 2), "bias": torch.zeros(2)}


def in_module(named: dict[str, torch.Tensor], prefix: str = "module.") -> dict[str, torch.Tensor]:
    return {f"{prefix}{name}": value for name, value in named.items()}


def optimizer_of(names: dict[str, torch.Tensor]) -> dict[str, Any]:
    return {
        "state": {name: {"exp_avg": value} for name, value in names.items()},
        "param_groups": [{"params": list(names), "lr": 0.1}],
    }


@pytest.mark.parametrize(
    ("model", "optimizer", "options", "found", "codes"),
    [
        # Nothing but the names: a wrapper's, and that is said.
        (in_module(NAMES), None, ReadOptions(), NAMES, ["CK106"]),
        (in_module(NAMES, "module._orig_mod."), None, ReadOptions(), NAMES, ["CK106"]),
        (in_module(NAMES, "module.module."), None, ReadOptions(), NAMES, ["CK106"]),
        # Others know better.
        (in_module(NAMES), NAMES, ReadOptions(), NAMES, ["CK106"]),
        (in_module(NAMES), in_module(NAMES), ReadOptions(), in_module(NAMES), []),
        (in_module(NAMES), None, ReadOptions(model="test_bad_sources:Inner"), in_module(NAMES), []),
        (in_module(NAMES), NAMES, ReadOptions(model="test_bad_sources:Inner"), in_module(NAMES), []),
        (in_module(NAMES), in_module(NAMES), ReadOptions(model="test_bad_sources:two_by_two"), NAMES, []),
        (in_module(NAMES), None, ReadOptions(names_are_exact=True), in_module(NAMES), []),
        (NAMES, in_module(NAMES), ReadOptions(), NAMES, []),
    ],
)
def test_module_before_every_name(
    tmp_path: Path,
    model: dict[str, torch.Tensor],
    optimizer: dict[str, torch.Tensor] | None,
    options: ReadOptions,
    found: dict[str, torch.Tensor],
    codes: list[str],
) -> None:
    saved = {"model": model} | ({} if optimizer is None else {"optim": optimizer_of(optimizer)})
    torch.save(saved, tmp_path / "x.pt")
    with open_source([tmp_path / "x.pt"], options) as contents:
        assert set(contents.model) == set(found)
        assert [notice.code for notice in contents.notices] == codes
        if optimizer is not None:
            assert contents.optimizer is not None and set(contents.optimizer.state) == set(found)


def two_by_two() -> torch.nn.Module:
    return torch.nn.Linear(2, 2)


def test_module_before_every_name_of_a_directory_is_the_models(tmp_path: Path) -> None:
    """FSDP1 wrote it: a directory is loaded by those names, and needs no converting."""
    dcp.save({"model": in_module(NAMES)}, checkpoint_id=tmp_path / "x")
    with open_source([tmp_path / "x"]) as contents:
        assert set(contents.model) == set(in_module(NAMES)) and contents.loadable_as_is
    with open_source([tmp_path / "x"], ReadOptions(model="test_bad_sources:two_by_two")) as contents:
        assert set(contents.model) == set(NAMES) and not contents.loadable_as_is


def test_names_that_become_one_are_refused(tmp_path: Path) -> None:
    torch.save({"a.w": torch.zeros(1), "a._orig_mod.w": torch.ones(1)}, tmp_path / "x.pt")
    fails(LayoutError, "two entries are named a.w", [tmp_path / "x.pt"])


def test_containers_of_frameworks(tmp_path: Path) -> None:
    model = {"w": torch.arange(4.0)}
    optimizer = {"state": {"w": {"exp_avg": torch.ones(4)}}, "param_groups": [{"params": ["w"], "lr": 0.1}]}
    shapes: dict[str, Any] = {
        "composer": {"state": {"model": model, "optimizers": {"AdamW": optimizer}}, "rng": [{"seed": 1}]},
        "fms": {"model_state": {"_orig_mod": model}, "optimizer_state": optimizer, "step": 5},
        "lightning": {"state_dict": model, "optimizer_states": [optimizer], "loops": {}, "epoch": 2},
        "ddp": {"model_state_dict": {"module.w": model["w"]}, "optimizer_state_dict": optimizer},
        "ema": {"model": model, "ema": {"w": torch.zeros(4)}, "optimizer": optimizer},
    }
    for name, value in shapes.items():
        path = tmp_path / f"{name}.pt"
        torch.save(value, path)
        with open_source([path]) as contents:
            assert_same_model(contents, model)
            assert contents.optimizer is not None, name
            assert bytes_of(contents.optimizer.state["w"]["exp_avg"]) == torch.ones(4).numpy().tobytes()  # type: ignore[arg-type]
    with open_source([tmp_path / "ema.pt"]) as contents:
        kept: Any = contents.extras["ema"]
        assert bytes_of(kept["w"]) == torch.zeros(4).numpy().tobytes()


def test_a_trainers_folder(tmp_path: Path) -> None:
    """The files that the Trainer leaves beside a checkpoint are no obstacle."""
    model = {"w": torch.arange(4.0)}
    optimizer = {"state": {"w": {"exp_avg": torch.ones(4)}}, "param_groups": [{"params": ["w"], "lr": 0.1}]}
    torch.save(model, tmp_path / "pytorch_model_fsdp.bin")
    torch.save(optimizer, tmp_path / "optimizer.bin")
    torch.save(argparse.Namespace(lr=1), tmp_path / "training_args.bin")
    torch.save({"last_epoch": 2, "_last_lr": [0.1]}, tmp_path / "scheduler.pt")
    torch.save({"ema_loss": torch.tensor(0.5)}, tmp_path / "stats_7.pt")
    for rank in (0, 1):
        torch.save({"cpu": torch.get_rng_state(), "rank": rank}, tmp_path / f"rng_state_{rank}.pth")
    (tmp_path / "trainer_state.json").write_text("{}")
    with open_source([tmp_path]) as contents:
        assert_same_model(contents, model)
        assert contents.optimizer is not None and set(contents.optimizer.state) == {"w"}
        assert contents.extras["last_epoch"] == 2
        assert contents.extras["rank"] == {0: 0, 1: 1}
        assert any(
            "training_args.bin is an object of class argparse.Namespace" in n.text for n in contents.notices
        )


def test_objects_of_unknown_classes_stay_behind_with_a_notice(tmp_path: Path) -> None:
    torch.save({"model": {"w": torch.zeros(2)}, "args": argparse.Namespace(lr=1)}, tmp_path / "x.pt")
    with open_source([tmp_path / "x.pt"]) as contents:
        assert [notice.code for notice in contents.notices] == ["CK101"]
        assert "args is an object of class argparse.Namespace" in contents.notices[0].text


def test_a_forged_rank_file_cannot_point_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    path.write_bytes(checkpoint({"w": Tensor(Stored("../../x", 10), 0, (3,), (1,))}, {"0": bytes(40)}))
    fails(UnreadableError, "record a/data/../../x is missing", [path])
