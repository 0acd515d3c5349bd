"""The zips we write are what `torch.load` and `zipfile` read, for every dtype and shape."""

import io
import math
import pickle
import zipfile

import pytest
import torch
from isal import isal_zlib

from checkpoint_convert.errors import UnsupportedError
from checkpoint_convert.model import DType, Opaque
from checkpoint_convert.writers import torch_zip
from checkpoint_convert.writers.pickle_stream import PickleStream
from tests.checkpoint_convert.memory_source import MemorySource, bits

SHAPES = [(), (0,), (3,), (2, 0, 5), (7, 5), (2, 3, 4, 5)]


@pytest.mark.parametrize("dtype", DType, ids=lambda dtype: dtype.torch_name)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_an_item_is_a_torch_save_archive(dtype: DType, shape: tuple[int, ...]) -> None:
    size = math.prod(shape) * dtype.itemsize
    raw = torch.randint(2, (size,), dtype=torch.uint8)
    tensor = raw.view(getattr(torch, dtype.torch_name)).reshape(shape)
    data = bits(tensor)
    frame = torch_zip.tensor_frame(dtype, shape)
    crc = isal_zlib.crc32(data)
    archive = frame.head(crc) + data + frame.tail(crc)
    assert len(frame.head(crc)) == frame.data_offset
    assert frame.data_offset % 64 == 0
    assert len(archive) == frame.size_bytes
    assert zipfile.ZipFile(io.BytesIO(archive)).testzip() is None
    loaded = torch.load(io.BytesIO(archive), weights_only=True)
    assert (loaded.dtype, loaded.shape, loaded.stride()) == (tensor.dtype, tensor.shape, tensor.stride())
    assert bits(loaded) == data


def test_overhead_of_an_item_stays_small() -> None:
    assert torch_zip.tensor_frame(DType.FLOAT32, (1024, 1024)).size_bytes - 4 * 2**20 < 800


VALUES = [
    None,
    True,
    [1, 2.5, -5, 255, 256, 2**31, -(2**31) - 1, 2**40, -(2**70), 2**3000],
    ("a", "ü\ud800", b"\x00\xff", bytearray(b"x"), 2 + 3j, float("inf")),
    {"nested": {3: [], "t": (), (1, 2): {}}, "": [[["x"]], "x"]},
    [f"name {number}" for number in range(700)] * 2,
]


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_plain_values_survive(value: object) -> None:
    loaded = torch.load(io.BytesIO(torch_zip.object_archive(value)), weights_only=False)
    assert loaded == value
    assert repr(type(loaded)) == repr(type(value))


def test_tensors_inside_tuples_survive_without_running_code() -> None:
    value = {"state": (3, torch.arange(5), (torch.ones(2, 3),))}
    written = {"state": (3, MemorySource(value["state"][1]), (MemorySource(value["state"][2][0]),))}
    loaded = torch.load(io.BytesIO(torch_zip.object_archive(written)), weights_only=True)
    assert loaded["state"][0] == 3
    assert torch.equal(loaded["state"][1], value["state"][1])
    assert torch.equal(loaded["state"][2][0], value["state"][2][0])


def test_an_unknown_class_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match=r"argparse\.Namespace"):
        torch_zip.object_archive([Opaque("argparse.Namespace")])


def test_names_are_written_without_importing() -> None:
    out = bytearray()
    stream = PickleStream(out.extend)
    stream.name("no_such_module", "NoSuchClass")
    stream.stop()
    with pytest.raises(ModuleNotFoundError):
        pickle.loads(bytes(out))


def test_central_directory_past_four_gib_is_zip64() -> None:
    far = torch_zip.Record("archive/data/9", 5 * 2**30, 5 * 2**30 + 64, 6 * 2**30)
    directory = b"".join(torch_zip.central_directory([(far, 7)], 12 * 2**30))
    assert len(directory) == torch_zip.central_entry_bytes(far) + len(
        torch_zip.central_end(1, torch_zip.central_entry_bytes(far), 12 * 2**30)
    )
    entry = zipfile.ZipFile(_Sparse(12 * 2**30, directory)).infolist()[0]
    assert (entry.header_offset, entry.file_size, entry.compress_size) == (5 * 2**30, 6 * 2**30, 6 * 2**30)
    header = torch_zip.local_header(far, 7)
    assert len(header) <= 64
    huge = torch_zip.place("archive/data/9", 6 * 2**30, 5 * 2**30, aligned=True)
    assert len(torch_zip.local_header(huge, 7)) == huge.data_offset - huge.header_offset


class _Sparse(io.RawIOBase):
    """So many zero bytes, then data."""

    def __init__(self, zeros: int, data: bytes) -> None:
        self._zeros, self._data, self._at = zeros, data, 0

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self._zeros + len(self._data))[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> bytes:
        end = self._zeros + len(self._data) if size < 0 else self._at + size
        begin = self._at - self._zeros
        found = (
            bytes(max(min(end, self._zeros) - self._at, 0))
            + self._data[max(begin, 0) : max(end - self._zeros, 0)]
        )
        self._at += len(found)
        return found
