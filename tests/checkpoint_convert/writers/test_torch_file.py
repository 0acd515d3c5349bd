"""One torch.save file, written as a stream."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
import torch

from checkpoint_convert.convert import ConvertOptions, convert
from checkpoint_convert.model import Contents
from checkpoint_convert.readers.open import open_source
from checkpoint_convert.write_options import OutputFormat, WriteOptions
from tests.checkpoint_convert.memory_source import MemorySource, bits
from tests.checkpoint_convert.trained import contents_of, trained, trained_contents


def write(contents: Contents, target: Path, jobs: int = 1) -> None:
    options = ConvertOptions(WriteOptions(to=OutputFormat.TORCH), jobs=jobs)
    convert(contents, target, options, reopen=lambda path: open_source([path]))


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("jobs", [1, 2])
def test_torch_load_reads_it(tmp_path: Path, jobs: int, mmap: bool) -> None:
    net, optimizer = trained()
    write(contents_of(net, optimizer), tmp_path / "out.pt", jobs)
    found = torch.load(tmp_path / "out.pt", weights_only=True, mmap=mmap)
    expected = net.state_dict()
    assert set(found) == {"model", "optim", "epoch", "scheduler"}
    assert set(found["model"]) == set(expected)
    for name, tensor in expected.items():
        assert bits(found["model"][name]) == bits(tensor)
    assert found["model"]["head.weight"].data_ptr() == found["model"]["embedding.weight"].data_ptr()
    fresh, other = trained()
    fresh.load_state_dict(found["model"])
    names = [name for name, _ in net.named_parameters()]
    numbered = {names.index(name): entry for name, entry in found["optim"]["state"].items()}
    group = {**found["optim"]["param_groups"][0], "params": list(range(len(names)))}
    other.load_state_dict({"state": numbered, "param_groups": [group]})
    assert str(other.state_dict()) == str(optimizer.state_dict())


def test_it_is_a_valid_zip_with_aligned_storages(tmp_path: Path) -> None:
    write(trained_contents(), tmp_path / "out.pt")
    archive = zipfile.ZipFile(tmp_path / "out.pt")
    assert archive.testzip() is None
    data = (tmp_path / "out.pt").read_bytes()
    for entry in archive.infolist():
        if entry.filename.startswith("archive/data/"):
            name, extra = data[entry.header_offset + 26 :][:2], data[entry.header_offset + 28 :][:2]
            begin = (
                entry.header_offset + 30 + int.from_bytes(name, "little") + int.from_bytes(extra, "little")
            )
            assert begin % 64 == 0


def test_extras_keep_their_nesting_and_key_types(tmp_path: Path) -> None:
    rng = torch.arange(9, dtype=torch.uint8)
    extras = {
        "milestones": {3: 1, 5: 2},
        "rng": {"cpu": MemorySource(rng), "python": (3, (1, 2, MemorySource(rng)), None)},
        "averages": [MemorySource(torch.ones(2)), {"decay": 0.9}],
    }
    write(trained_contents(extras=extras), tmp_path / "out.pt")
    found = torch.load(tmp_path / "out.pt", weights_only=True)
    assert found["milestones"] == {3: 1, 5: 2}
    assert torch.equal(found["rng"]["cpu"], rng)
    assert torch.equal(found["rng"]["python"][1][2], rng)
    assert torch.equal(found["averages"][0], torch.ones(2))
    assert found["averages"][1] == {"decay": 0.9}


def test_the_report_lies_beside_the_file(tmp_path: Path) -> None:
    write(trained_contents(), tmp_path / "out.pt")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.pt", "out.pt.conversion.json"]
