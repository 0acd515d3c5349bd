"""The DCP directories we write, held against torch's own reader."""

from __future__ import annotations

import hashlib
import io
import pickletools
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

from checkpoint_convert.convert import ConvertOptions, convert
from checkpoint_convert.model import Contents, Opaque, OptimizerContents, ParamGroup
from checkpoint_convert.readers.open import open_source
from checkpoint_convert.write_options import OutputFormat, WriteOptions
from tests.checkpoint_convert.memory_source import MemorySource, bits
from tests.checkpoint_convert.trained import contents_of, trained, trained_contents

SMALL = WriteOptions(chunk_bytes=200, file_bytes=4000)


def write(contents: Contents, target: Path, options: WriteOptions = SMALL, jobs: int = 1) -> None:
    convert(
        contents,
        target,
        ConvertOptions(options, jobs=jobs),
        reopen=lambda path: open_source([path]),
    )


def loaded(directory: Path) -> dict:
    """Through torch's own converter."""
    file = directory.with_suffix(".loaded.pt")
    dcp_to_torch_save(directory, file)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize(
    "options", [WriteOptions(), SMALL, replace(SMALL, shards=3)], ids=["whole", "cut", "shards"]
)
@pytest.mark.parametrize("jobs", [1, 2])
def test_torch_reads_what_was_written(tmp_path: Path, options: WriteOptions, jobs: int) -> None:
    net, optimizer = trained()
    write(contents_of(net, optimizer), tmp_path / "out", options, jobs)
    found = loaded(tmp_path / "out")
    expected = net.state_dict()
    assert set(found["model"]) == set(expected)
    for name, tensor in expected.items():
        assert found["model"][name].dtype == tensor.dtype
        assert bits(found["model"][name]) == bits(tensor), name
    names = [name for name, _ in net.named_parameters()]
    state = optimizer.state_dict()
    assert set(found["optim"]["state"]) == {names[number] for number in state["state"]}
    for number, entry in state["state"].items():
        for key, tensor in entry.items():
            assert torch.equal(found["optim"]["state"][names[number]][key], tensor)
    [group] = found["optim"]["param_groups"]
    assert group == {**state["param_groups"][0], "params": names}
    assert (found["epoch"], found["scheduler"]) == (3, {"last_epoch": 2, "base_lrs": [0.01]})


def test_metadata_has_the_keys_and_paths_of_torch(tmp_path: Path) -> None:
    """Ours against a directory that torch wrote from the same state dict."""
    net, optimizer = trained()
    write(contents_of(net, optimizer), tmp_path / "ours", WriteOptions())
    names = [name for name, _ in net.named_parameters()]
    packed = optimizer.state_dict()
    state = {
        "model": net.state_dict(),
        "optim": {
            "state": {names[number]: entry for number, entry in packed["state"].items()},
            "param_groups": [{**packed["param_groups"][0], "params": names}],
        },
        "epoch": 3,
        "scheduler": {"last_epoch": 2, "base_lrs": [0.01]},
    }
    dcp.save(state, checkpoint_id=tmp_path / "theirs")
    ours = dcp.FileSystemReader(tmp_path / "ours").read_metadata()
    theirs = dcp.FileSystemReader(tmp_path / "theirs").read_metadata()
    assert ours.state_dict_metadata == theirs.state_dict_metadata
    assert ours.planner_data == theirs.planner_data
    assert set(ours.storage_data) == set(theirs.storage_data)
    assert ours.version == theirs.version


def test_every_item_is_a_valid_aligned_zip(tmp_path: Path) -> None:
    write(trained_contents(), tmp_path / "out")
    metadata = dcp.FileSystemReader(tmp_path / "out").read_metadata()
    for place in metadata.storage_data.values():
        assert place.offset % 64 == 0
        item = (tmp_path / "out" / place.relative_path).read_bytes()[place.offset :][: place.length]
        assert zipfile.ZipFile(io.BytesIO(item)).testzip() is None


def test_chunks_files_and_scalars_are_where_the_plan_says(tmp_path: Path) -> None:
    write(trained_contents(), tmp_path / "cut")
    names = {path.name for path in (tmp_path / "cut").glob("*.distcp")}
    assert len(names) > 3
    for path in (tmp_path / "cut").glob("__0_[1-9]*.distcp"):
        assert path.stat().st_size < 4000 + 1000
    metadata = dcp.FileSystemReader(tmp_path / "cut").read_metadata()
    for index, place in metadata.storage_data.items():
        stored = metadata.state_dict_metadata[index.fqn]
        small = not isinstance(stored, dcp.metadata.TensorStorageMetadata) or stored.size == torch.Size([])
        assert (place.relative_path == "__0_0.distcp") == small
    write(trained_contents(), tmp_path / "shards", replace(SMALL, shards=3))
    assert sorted(path.name for path in (tmp_path / "shards").glob("*.distcp")) == [
        "__0_0.distcp",
        "__0_1.distcp",
        "__1_1.distcp",
        "__2_1.distcp",
    ]
    metadata = dcp.FileSystemReader(tmp_path / "shards").read_metadata()
    for index, place in metadata.storage_data.items():
        if index.fqn == "model.embedding.weight":
            assert (
                place.relative_path == f"__{index.offset[0] // 17}_1.distcp"
            )  # 50 rows on 3 ranks: 17, 17, 16


def test_tied_names_share_their_bytes(tmp_path: Path) -> None:
    write(trained_contents(), tmp_path / "out")
    metadata = dcp.FileSystemReader(tmp_path / "out").read_metadata()
    places: dict[str, set] = {"model.embedding.weight": set(), "model.head.weight": set()}
    for index, place in metadata.storage_data.items():
        if index.fqn in places:
            places[index.fqn].add((place.relative_path, place.offset))
    assert places["model.embedding.weight"] == places["model.head.weight"] != set()


def test_the_same_source_gives_the_same_bytes(tmp_path: Path) -> None:
    def digests(folder: Path) -> dict[str, str]:
        return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}

    write(trained_contents(), tmp_path / "one")
    write(trained_contents(), tmp_path / "two", jobs=2)
    assert digests(tmp_path / "one") == digests(tmp_path / "two")


def test_extras_of_every_kind(tmp_path: Path) -> None:
    rng = torch.arange(9, dtype=torch.uint8)
    extras = {
        "rng": {"cpu": MemorySource(rng), "numpy": ("MT19937", MemorySource(rng), 3, 0.5)},
        "milestones": {3: 1},
        "history": [1, [2, 3]],
        "mixed": [MemorySource(rng), Opaque("some.Class"), {"k": 1}],
        "nothing": {},
        "args": Opaque("argparse.Namespace"),
        "model_name": "net",
    }
    write(trained_contents(extras=extras), tmp_path / "out")
    found = loaded(tmp_path / "out")
    assert torch.equal(found["rng"]["cpu"], rng)
    assert torch.equal(found["rng"]["numpy"][1], rng)
    assert found["rng"]["numpy"][::2] == ("MT19937", 3)
    assert found["milestones"] == {"3": 1}, "torch's planner turns keys into text, and asks for them so"
    assert found["history"] == [1, [2, 3]]
    assert torch.equal(found["mixed"][0], rng)
    assert found["mixed"][1:] == [None, {"k": 1}]
    assert found["nothing"] == {}
    assert found["model_name"] == "net"
    assert "args" not in found
    report = (tmp_path / "out" / "conversion.json").read_text()
    assert "not in the output: mixed.1 (an object of class some.Class)" in report
    assert "not in the output: args (an object of class argparse.Namespace)" in report


def test_an_optimizer_without_state(tmp_path: Path) -> None:
    contents = trained_contents()
    assert contents.optimizer is not None
    options = {"lr": 0.1, "momentum": 0, "dampening": 0, "weight_decay": 0, "nesterov": False}
    group = ParamGroup(contents.optimizer.groups[0].params, options)
    contents = replace(contents, optimizer=OptimizerContents({}, [group]))
    for to in OutputFormat:
        write(contents, tmp_path / to.value, WriteOptions(to=to))
    found = loaded(tmp_path / "dcp")["optim"]
    assert found["state"] == {}
    assert found["param_groups"][0]["lr"] == 0.1
    assert found["param_groups"][0]["foreach"] is None
    assert torch.load(tmp_path / "torch", weights_only=True)["optim"]["state"] == {}


def test_metadata_names_only_classes_that_torch_2_6_has(tmp_path: Path) -> None:
    write(trained_contents(), tmp_path / "out")
    pickled = (tmp_path / "out" / ".metadata").read_bytes()
    named = {argument for code, argument, _ in pickletools.genops(pickled) if code.name == "GLOBAL"}
    metadata = "torch.distributed.checkpoint.metadata"
    assert named == {
        f"{metadata} Metadata",
        f"{metadata} TensorStorageMetadata",
        f"{metadata} TensorProperties",
        f"{metadata} _MEM_FORMAT_ENCODING",
        f"{metadata} BytesStorageMetadata",
        f"{metadata} ChunkStorageMetadata",
        f"{metadata} MetadataIndex",
        "torch.distributed.checkpoint.filesystem _StorageInfo",
        "torch.serialization _get_layout",
        "torch Size",
        "torch float32",
        "torch bfloat16",
        "torch int64",
    }
