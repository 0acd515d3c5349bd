"""Files that torch 1.13 to 2.4 wrote come out bit for bit, model and optimizer."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from comparing import assert_same_model, assert_same_state, load

from checkpoint_convert.model import SourceFormat
from checkpoint_convert.readers.open import ReadOptions, open_source

MODEL = ReadOptions(model="tiny_model:TinyModel")
NOTHING = ReadOptions()
FOLDERS = sorted(path.name for path in (Path(__file__).parent.parent / "old_torch").glob("torch-*"))
CASES = [
    ("truth.pt truth_optim.pt", NOTHING, SourceFormat.FULL),
    ("local_*.pt", MODEL, SourceFormat.LOCAL),
    ("local_*.pt optim_raw_*.pt", MODEL, SourceFormat.LOCAL),
    ("optim_raw_*.pt", MODEL, SourceFormat.RAW_OPTIM),
    ("named_*.pt", MODEL, SourceFormat.LOCAL),
    ("sharded_*.pt", NOTHING, SourceFormat.SHARDED),
    ("sharded_*.pt optim_raw_*.pt", NOTHING, SourceFormat.SHARDED),
    ("dcp", NOTHING, SourceFormat.DCP),
    ("model_world_size_3_rank_*.pt fsdp_optim_*.pt", NOTHING, SourceFormat.SHARDED),
    ("model_world_size_3_rank_*.pt optim_world_size_3_rank_*.pt", NOTHING, SourceFormat.SHARDED),
]


@pytest.mark.parametrize("patterns, options, expected", CASES, ids=[case[0] for case in CASES])
@pytest.mark.parametrize("folder", FOLDERS)
def test_bit_exact(
    old_torch: Path, folder: str, patterns: str, options: ReadOptions, expected: SourceFormat
) -> None:
    there = [old_torch / folder / pattern for pattern in patterns.split()]
    if not all(list(path.parent.glob(path.name)) for path in there):
        # That release could not write this kind; the README of the corpus says which.
        assert (
            folder.startswith("torch-1.13")
            or "verl" in folder
            or ("verl" not in folder and "model_" in patterns)
        )
        return
    truth = load(old_torch / folder / "truth.pt")
    state = load(old_torch / folder / "truth_optim.pt")["state"]
    with open_source(there, options) as contents:
        assert contents.format is expected
        if "named" in patterns:
            truth = {name: value for name, value in truth.items() if not name.endswith("buf")}
        if contents.model:
            assert_same_model(contents, truth)
        if "optim" in patterns or (contents.optimizer is not None):
            assert_same_state(contents.optimizer, state)
        contents.finish()


def test_a_verl_folder_needs_no_options(old_torch: Path, tmp_path: Path) -> None:
    source = old_torch / "torch-2.4.1_world3_mesh_verl"
    for file in source.glob("*_world_size_*.pt"):
        shutil.copy(file, tmp_path)
    (tmp_path / "fsdp_config.json").write_text('{"FSDP_version": 1, "world_size": 3}')
    (tmp_path / "huggingface").mkdir()
    with open_source([tmp_path]) as contents:
        assert_same_model(contents, load(source / "truth.pt"))
        assert_same_state(contents.optimizer, load(source / "truth_optim.pt")["state"])
        assert [notice.code for notice in contents.notices] == ["CK104"]


def test_the_corpus_is_there(old_torch: Path) -> None:
    assert FOLDERS == [
        "torch-1.13.1_world3_flat",
        "torch-2.0.1_world3_orig",
        "torch-2.1.2_world3_flat",
        "torch-2.4.1_world3_flat",
        "torch-2.4.1_world3_mesh_verl",
    ]


def test_a_folder_of_many_kinds_is_ambiguous_and_from_decides(old_torch: Path) -> None:
    folder = old_torch / "torch-2.1.2_world3_flat"
    truth, state = load(folder / "truth.pt"), load(folder / "truth_optim.pt")["state"]
    local = [folder / "local_*.pt", folder / "optim_raw_*.pt", folder / "truth.pt", folder / "truth_optim.pt"]
    for wanted in (SourceFormat.LOCAL, SourceFormat.FULL):
        options = ReadOptions(format=wanted, model="tiny_model:TinyModel")
        with open_source(local, options) as contents:
            assert contents.format is wanted
            assert_same_model(contents, truth)
            assert_same_state(contents.optimizer, state)


def test_dcp_of_old_torch_says_what_keeps_fsdp2_from_loading_it(old_torch: Path) -> None:
    with open_source([old_torch / "torch-2.0.1_world3_orig" / "dcp"]) as contents:
        assert contents.loadable_as_is
    with open_source([old_torch / "torch-2.1.2_world3_flat" / "dcp"]) as contents:
        assert contents.loadable_as_is
    with open_source([old_torch / "torch-2.4.1_world3_flat" / "dcp"]) as contents:
        assert not contents.loadable_as_is
        assert "decoupled_weight_decay" in contents.notices[0].text
