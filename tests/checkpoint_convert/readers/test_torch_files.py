"""torch.save files, whole and hostile: every tensor as torch wrote it, or an error naming file and byte."""

from __future__ import annotations

import os
import random
import struct
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from comparing import assert_same_tensor, bytes_of
from forging import Entry, Stored, Tensor, archive, checkpoint, dumps

from checkpoint_convert.errors import CheckpointError, UnreadableError, UnsupportedError
from checkpoint_convert.file_bytes import OpenFiles
from checkpoint_convert.model import BLOCK_BYTES, DType, numel
from checkpoint_convert.readers.open import open_source
from checkpoint_convert.tensor_sources import MemoryTensor
from checkpoint_convert.torch_file import read_torch_file
from checkpoint_convert.zip_records import ZipArchive, ZipRecord

FLOATS = bytes(range(40))


def read(path: Path) -> Any:
    return read_torch_file(OpenFiles(), path).value


def many_tensors() -> dict[str, torch.Tensor]:
    """Every dtype, every kind of view."""
    torch.manual_seed(0)
    made: dict[str, torch.Tensor] = {}
    for dtype in DType:
        kind = getattr(torch, dtype.torch_name)
        made[dtype.torch_name] = torch.randint(0, 2, (3, 5)).to(kind)
    base = torch.randn(40, 30)
    made |= {
        "transposed": base.t(),
        "sliced": base[3:17:2, 5:],
        "channels_last": torch.randn(2, 3, 5, 7).to(memory_format=torch.channels_last),
        "expanded": torch.randn(3).expand(4, 3),
        "scalar": torch.tensor(2.5),
        "empty": torch.zeros(0, 4),
        "permuted": torch.randn(3, 4, 5, 6).permute(2, 0, 3, 1),
        "large": torch.randn(700, 301).t()[5:],
        "parameter": torch.nn.Parameter(torch.randn(4)),
        "wide": torch.randn(3, 100_000).t(),
    }
    return made


@pytest.mark.parametrize("zip_format", [True, False], ids=["zip", "legacy"])
def test_every_dtype_and_view(tmp_path: Path, zip_format: bool) -> None:
    tensors = many_tensors()
    path = tmp_path / "x.pt"
    torch.save(tensors, path, _use_new_zipfile_serialization=zip_format)
    found = read(path)
    assert set(found) == set(tensors)
    for name, tensor in tensors.items():
        assert_same_tensor(found[name], tensor, name)
        _check_ranges(found[name])


def _check_ranges(source: Any) -> None:
    """Any stretch of elements is the same stretch of all of them, in blocks of bounded size."""
    whole, item, count = bytes_of(source), source.dtype.itemsize, numel(source.shape)
    generator = random.Random(0)
    for _ in range(6):
        start, stop = sorted((generator.randint(0, count), generator.randint(0, count)))
        blocks = [bytes(block) for block in source.blocks(start, stop)]
        assert b"".join(blocks) == whole[start * item : stop * item]
        assert all(0 < len(block) <= BLOCK_BYTES for block in blocks)


def test_other_values(tmp_path: Path) -> None:
    value = {
        "numpy": numpy.arange(6, dtype=numpy.int32).reshape(2, 3),
        "scalar": numpy.float64(2.5),
        "rng": numpy.random.RandomState(3).get_state(),
        "size": torch.Size([2, 3]),
        "bytes": b"\x00\xff",
        "nested": [(1, {"a": None})],
    }
    path = tmp_path / "x.pt"
    torch.save(value, path)
    found = read(path)
    assert (found["numpy"].dtype, found["numpy"].shape) == (DType.INT32, (2, 3))
    assert bytes_of(found["numpy"]) == value["numpy"].tobytes()
    assert found["scalar"] == 2.5
    assert bytes_of(found["rng"][1]) == value["rng"][1].tobytes()
    assert found["size"] == (2, 3)
    assert (found["bytes"], found["nested"]) == (b"\x00\xff", [(1, {"a": None})])


def test_checksums_may_be_left_out(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    torch.serialization.set_crc32_options(False)
    try:
        torch.save({"w": torch.arange(5.0)}, path)
    finally:
        torch.serialization.set_crc32_options(True)
    assert_same_tensor(read(path)["w"], torch.arange(5.0), "w")


FORGED: dict[str, tuple[bytes, str]] = {
    "outside its storage": (
        checkpoint({"w": Tensor(Stored("0", 10), 4, (7,), (1,))}, {"0": FLOATS}),
        "reaches 44 bytes into a storage of 40",
    ),
    "outside by stride": (
        checkpoint({"w": Tensor(Stored("0", 10), 0, (2, 2), (10, 1))}, {"0": FLOATS}),
        "reaches 48 bytes",
    ),
    "negative size": (checkpoint({"w": Tensor(Stored("0", 10), 0, (-1,), (1,))}, {"0": FLOATS}), "size"),
    "negative stride": (checkpoint({"w": Tensor(Stored("0", 10), 9, (3,), (-1,))}, {"0": FLOATS}), "stride"),
    "negative offset": (checkpoint({"w": Tensor(Stored("0", 10), -2, (3,), (1,))}, {"0": FLOATS}), "offset"),
    "huge by repetition": (
        checkpoint({"w": Tensor(Stored("0", 10), 0, (1 << 40,), (0,))}, {"0": FLOATS}),
        "over and over",
    ),
    "storage of another size": (
        checkpoint({"w": Tensor(Stored("0", 99), 0, (3,), (1,))}, {"0": FLOATS}),
        "should take 396 bytes",
    ),
    "missing storage": (checkpoint({"w": Tensor(Stored("7", 10), 0, (3,), (1,))}, {"0": FLOATS}), "missing"),
    "compressed": (
        archive(
            [
                Entry("a/data.pkl", dumps({"w": Tensor(Stored("0", 10), 0, (3,), (1,))})),
                Entry("a/data/0", FLOATS, method=8),
            ]
        ),
        "compressed",
    ),
    "twice the same name": (
        archive([Entry("a/data.pkl", dumps({"w": 1})), Entry("a/data.pkl", dumps({"w": 2}))]),
        "two records are named",
    ),
    "overlapping": (
        archive(
            [
                Entry("a/data.pkl", dumps([Tensor(Stored(key, 10), 0, (3,), (1,)) for key in "01"])),
                Entry("a/data/0", FLOATS),
                Entry("a/data/1", FLOATS, header=0, size=40),
            ]
        ),
        "no local header|overlap|reaches past|does not match|two records",
    ),
    "no data.pkl": (archive([Entry("a/b", b"x")]), "no data.pkl"),
    "directory missing": (
        archive([Entry("a/data.pkl", dumps(1))], end=b""),
        "directory that should end it at byte",
    ),
    "directory elsewhere": (
        archive(
            [Entry("a/data.pkl", dumps(1))],
            end=struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 9, 9, 900, 99999, 0),
        ),
        "outside itself",
    ),
    "more entries than the directory holds": (
        archive(
            [Entry("a/data.pkl", dumps(1))], end=struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 9, 9, 56, 52, 0)
        ),
        "directory",
    ),
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_archives_are_refused(tmp_path: Path, name: str) -> None:
    data, reason = FORGED[name]
    path = tmp_path / "x.pt"
    path.write_bytes(data)
    with pytest.raises(UnreadableError, match=reason) as caught:
        read(path)
    assert str(path) in caught.value.message
    assert caught.value.hint


def test_two_names_for_the_same_bytes_are_refused(tmp_path: Path) -> None:
    value = dumps({"w": Tensor(Stored("0", 10), 0, (3,), (1,)), "v": Tensor(Stored("1", 10), 0, (3,), (1,))})
    at = 30 + len("a/data.pkl") + len(value)
    entries = [
        Entry("a/data.pkl", value),
        Entry("a/data/0", FLOATS),
        Entry("a/data/1", FLOATS, header=at),
    ]
    path = tmp_path / "x.pt"
    path.write_bytes(archive(entries))
    with pytest.raises(UnreadableError, match="two records overlap"):
        read(path)


def test_headers_far_beyond_the_archive_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    torch.save({"w": torch.ones(3)}, path)
    archive = ZipArchive(OpenFiles(), path, 0, path.stat().st_size)
    for header in (path.stat().st_size, 2**63, 2**64 - 1):
        with pytest.raises(UnreadableError, match="outside itself"):
            archive.data_position(ZipRecord("x/data/0", header, 12, 0, compressed=False))


@pytest.mark.parametrize("shape", [(-1,), (-2, -2), (4, -1)])
def test_sizes_below_zero_are_no_tensor(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="for a tensor of size"):
        MemoryTensor(DType.UINT8, shape, bytes(4))


def test_big_endian_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    entries = [Entry("a/data.pkl", dumps({"w": 1})), Entry("a/byteorder", b"big")]
    path.write_bytes(archive(entries))
    with pytest.raises(UnsupportedError, match="big-endian"):
        read(path)
    torch.save({"w": torch.zeros(2)}, path, _use_new_zipfile_serialization=False)
    data = path.read_bytes()
    flag = data.index(b"little_endian") + len(b"little_endian")
    at = data.index(b"\x88", flag)
    path.write_bytes(data[:at] + b"\x89" + data[at + 1 :])
    with pytest.raises(UnsupportedError, match="big-endian"):
        read(path)


def test_a_torchscript_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.script(torch.nn.Linear(2, 2)).save(str(path))
    with pytest.raises(UnsupportedError, match="TorchScript"):
        read(path)


@pytest.mark.parametrize("zip_format", [True, False], ids=["zip", "legacy"])
def test_every_truncation_names_file_and_byte(tmp_path: Path, zip_format: bool) -> None:
    path = tmp_path / "x.pt"
    torch.save(
        {"w": torch.arange(30.0), "b": torch.zeros(4)}, path, _use_new_zipfile_serialization=zip_format
    )
    data = path.read_bytes()
    cut = tmp_path / "cut.pt"
    for length in range(0, len(data), 7):
        cut.write_bytes(data[:length])
        with pytest.raises(UnreadableError) as caught:
            read(cut)
        assert str(cut) in caught.value.message
        assert length == 0 or any(word in caught.value.message for word in ("byte", "directory")), (
            caught.value.message
        )


def test_a_flipped_byte_never_comes_out_as_a_value(tmp_path: Path) -> None:
    """Whatever single byte is damaged: the values are as they were, or there is an error."""
    tensors = {"w": torch.arange(64.0), "n": torch.arange(5), "t": torch.randn(6, 4).t()}
    path, damaged = tmp_path / "x.pt", tmp_path / "damaged.pt"
    torch.save(tensors, path)
    data = path.read_bytes()
    generator, caught = random.Random(1), 0
    for at in sorted(generator.sample(range(len(data)), 250)):
        damaged.write_bytes(data[:at] + bytes([data[at] ^ (1 << generator.randrange(8))]) + data[at + 1 :])
        try:
            with open_source([damaged]) as contents:
                found = {name: bytes_of(source) for name, source in contents.model.items()}
                contents.finish()
            assert set(found) == set(tensors), at
            for name, tensor in tensors.items():
                assert found[name] == tensor.contiguous().numpy().tobytes(), (name, at)
        except CheckpointError:
            caught += 1
    assert caught > 50


def test_damage_in_a_part_no_tensor_covers_is_found_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    torch.save({"w": torch.arange(1000.0)[:900]}, path)
    data = bytearray(path.read_bytes())
    data[data.index(struct.pack("<f", 950.0))] ^= 1
    path.write_bytes(data)
    with open_source([path]) as contents:
        assert len(bytes_of(contents.model["w"])) == 3600
        with pytest.raises(UnreadableError, match="CRC-32"):
            contents.finish()


def test_reading_in_any_order_checks_the_whole(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    torch.save({"w": torch.arange(1000.0)}, path)
    data = bytearray(path.read_bytes())
    data[data.index(struct.pack("<f", 500.0))] ^= 1
    path.write_bytes(data)
    with open_source([path]) as contents:
        source = contents.model["w"]
        for start in (600, 800, 0, 200):
            list(source.blocks(start, start + 200))
            list(source.blocks(start, start + 100))  # again: counted once
        with pytest.raises(UnreadableError, match=r"record a?.*data/0.*CRC-32"):
            list(source.blocks(350, 700))


def test_beyond_four_gigabytes(tmp_path: Path) -> None:
    """64-bit offsets and sizes, in a file that is a hole for the most part."""
    path = tmp_path / "x.pt"
    gap = 5 << 30
    pickled = dumps(
        {
            "w": Tensor(Stored("1", 10), 0, (10,), (1,)),
            "hole": Tensor(Stored("0", gap, "ByteStorage"), gap - 3, (3,), (1,)),
        }
    )
    places: dict[str, tuple[int, int]] = {}
    with path.open("wb") as file:
        for name, data, size in (
            ("a/data/0", None, gap),
            ("a/data/1", FLOATS, 40),
            ("a/data.pkl", pickled, len(pickled)),
        ):
            places[name] = (file.tell(), size)
            file.write(
                struct.pack(
                    "<4s5H3L2H", b"PK\x03\x04", 45, 0, 0, 0, 0, 0, 0xFFFFFFFF, 0xFFFFFFFF, len(name), 0
                )
            )
            file.write(name.encode())
            if data is None:
                file.seek(size, os.SEEK_CUR)
            else:
                file.write(data)
        begin = file.tell()
        for name, (at, size) in places.items():
            wide = struct.pack("<2H3Q", 1, 24, size, size, at)
            file.write(
                struct.pack(
                    "<4s6H3L5H2L",
                    b"PK\x01\x02",
                    45,
                    45,
                    0,
                    0,
                    0,
                    0,
                    0,
                    0xFFFFFFFF,
                    0xFFFFFFFF,
                    len(name),
                    len(wide),
                    0,
                    0,
                    0,
                    0,
                    0xFFFFFFFF,
                )
            )
            file.write(name.encode() + wide)
        end = file.tell()
        file.write(struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, 3, 3, end - begin, begin))
        file.write(struct.pack("<4sLQL", b"PK\x06\x07", 0, end, 1))
        file.write(struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0))
    assert zipfile.is_zipfile(path)
    found = read(path)
    assert bytes_of(found["w"]) == FLOATS
    assert bytes_of(found["hole"]) == b"\0\0\0"


def test_a_pickled_module_says_what_to_save_instead(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    torch.save(torch.nn.Linear(2, 2), path)
    with (
        pytest.raises(
            UnsupportedError, match=r"object of class torch\.nn\.modules\.linear\.Linear"
        ) as caught,
        open_source([path]),
    ):
        pass
    assert "state_dict" in caught.value.hint


def test_handles_are_few_and_threads_may_share_them(tmp_path: Path) -> None:
    """More files than may be open, read from several threads at a time."""
    from concurrent.futures import ThreadPoolExecutor

    tensors = {f"t{number}": torch.randn(5000) for number in range(24)}
    files = OpenFiles(limit=4)
    sources = {}
    for name, tensor in tensors.items():
        torch.save(tensor, tmp_path / f"{name}.pt")
        sources[name] = read_torch_file(files, tmp_path / f"{name}.pt").value
    open_now = []

    def check(name: str) -> bool:
        same = bytes_of(sources[name]) == tensors[name].numpy().tobytes()
        open_now.append(sum(str(tmp_path) in target for target in _targets()))
        return same

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(check, [*tensors, *reversed(tensors)] * 3))
    assert max(open_now) <= 8  # four kept, and one more a thread at worst
    files.close()
    assert not any(str(tmp_path) in target for target in _targets())


def _targets() -> list[str]:
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            found.append(str(descriptor.readlink()))
        except OSError:  # closed meanwhile
            continue
    return found


def test_memory_stays_small(tmp_path: Path) -> None:
    """Reading 64 MiB holds a few blocks at a time."""
    import tracemalloc

    path = tmp_path / "x.pt"
    torch.save({"w": torch.zeros(16 << 20)}, path)
    with open_source([path]) as contents:
        tracemalloc.start()
        total = sum(len(block) for block in contents.model["w"].blocks(0, 16 << 20))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert total == 64 << 20
    assert peak < 2 << 20


def test_a_cold_file_is_not_waited_for_record_by_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system hears of all headers before the first is read; items of a directory have too few."""
    path = tmp_path / "x.pt"
    torch.save({f"w{number}": torch.zeros(4) for number in range(20)}, path)
    announced: list[tuple[int, int]] = []

    def advise(handle: int, position: int, count: int, advice: int) -> None:
        assert advice == os.POSIX_FADV_WILLNEED
        announced.append((position, count))

    read: list[int] = []

    def pread(handle: int, count: int, position: int) -> bytes:
        read.append(len(announced))
        with path.open("rb") as file:
            file.seek(position)
            return file.read(count)

    monkeypatch.setattr(os, "posix_fadvise", advise, raising=False)
    monkeypatch.setattr(os, "POSIX_FADV_WILLNEED", 3, raising=False)
    monkeypatch.setattr(os, "pread", pread)
    with open_source([path]) as contents:
        assert len(contents.model) == 20
    data = path.read_bytes()
    assert len(announced) == data.count(b"PK\x03\x04")
    assert all(data[position:].startswith(b"PK\x03\x04") and count == 30 for position, count in announced)
    assert read[-20:] == [len(announced)] * 20
