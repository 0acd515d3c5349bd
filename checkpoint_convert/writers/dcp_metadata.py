"""`.metadata`: the pickle that torch.distributed.checkpoint reads first, written by names, without torch.

Source: torch `distributed/checkpoint/metadata.py` (classes and `TensorProperties.__setstate__`),
`filesystem.py` (`_StorageInfo`), `torch/serialization.py` (`_get_layout`). torch 2.6 and later read it.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from checkpoint_convert.model import DType
from checkpoint_convert.values import KeyPath, dotted
from checkpoint_convert.writers.pickle_stream import PickleStream, Sink

_METADATA = "torch.distributed.checkpoint.metadata"


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """A chunk (offsets and sizes in elements) and the item that holds it (offset and length in bytes)."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    file: str
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor of the directory; the key is the dotted path."""

    path: KeyPath
    dtype: DType
    shape: tuple[int, ...]
    chunks: Iterable[StoredChunk]


@dataclass(frozen=True, slots=True)
class StoredValue:
    """A plain value of the directory."""

    path: KeyPath
    file: str
    offset: int
    length: int


Stored: TypeAlias = "StoredTensor | StoredValue"


def write_metadata(sink: Sink, stored: Callable[[], Iterator[Stored]]) -> None:
    """Write the pickle of a `Metadata`.

    Args:
        stored: everything in the directory; asked once per table, so that no table is held in memory.
    """
    stream = PickleStream(sink)
    keys = array("L")  # where the reader stores each key, which all three tables name
    _begin(stream, _METADATA, "Metadata")
    stream.text("state_dict_metadata")
    stream.raw(b"}(")
    for entry in stored():
        keys.append(stream.new_text(dotted(entry.path)))
        if isinstance(entry, StoredTensor):
            _tensor(stream, entry)
        else:
            _empty(stream, "BytesStorageMetadata")
    stream.raw(b"u")
    stream.text("planner_data")
    stream.raw(b"}(")
    for key, entry in zip(keys, stored(), strict=True):
        stream.fetch(key)
        stream.value(entry.path)
    stream.raw(b"u")
    stream.text("storage_data")
    stream.raw(b"}(")
    for key, entry in zip(keys, stored(), strict=True):
        _storage(stream, entry, key)
    stream.raw(b"u")
    stream.text("storage_meta")
    stream.raw(b"N")
    stream.text("version")
    stream.text("1.0.0")
    _end(stream)
    stream.stop()


def _begin(stream: PickleStream, module: str, name: str) -> None:
    """An object of that class whose attributes follow as name, value, ...; `_end` sets them."""
    stream.name(module, name)
    stream.raw(b")\x81}(")


def _end(stream: PickleStream) -> None:
    stream.raw(b"ub")


def _empty(stream: PickleStream, name: str) -> None:
    stream.name(_METADATA, name)
    stream.raw(b")\x81")


def _size(stream: PickleStream, numbers: Sequence[int]) -> None:
    stream.name("torch", "Size")
    stream.integers(numbers)
    stream.raw(b"\x85R")


def _tensor(stream: PickleStream, entry: StoredTensor) -> None:
    chunks = tuple((chunk.offsets, chunk.sizes) for chunk in entry.chunks)

    def write(stream: PickleStream) -> None:
        _tensor_entry(stream, entry.dtype, entry.shape, chunks)

    stream.repeat((entry.dtype, entry.shape, chunks), write)


def _tensor_entry(
    stream: PickleStream,
    dtype: DType,
    shape: tuple[int, ...],
    chunks: Sequence[tuple[tuple[int, ...], tuple[int, ...]]],
) -> None:
    _begin(stream, _METADATA, "TensorStorageMetadata")
    stream.text("properties")
    _properties(stream, dtype)
    stream.text("size")
    _size(stream, shape)
    stream.text("chunks")
    stream.raw(b"](")
    for offsets, sizes in chunks:
        _begin(stream, _METADATA, "ChunkStorageMetadata")
        stream.text("offsets")
        _size(stream, offsets)
        stream.text("sizes")
        _size(stream, sizes)
        _end(stream)
    stream.raw(b"e")
    _end(stream)


def _properties(stream: PickleStream, dtype: DType) -> None:
    """`TensorProperties`: its state is (dtype, layout, requires_grad, memory format, pin_memory)."""
    _empty(stream, "TensorProperties")
    stream.raw(b"(")
    stream.name("torch", dtype.torch_name)
    if not stream.recall(("layout",)):
        stream.name("torch.serialization", "_get_layout")
        stream.text("torch.strided")
        stream.raw(b"\x85R")
        stream.remember(("layout",))
    stream.raw(b"\x89")
    stream.name(_METADATA, "_MEM_FORMAT_ENCODING")
    stream.integer(0)  # TORCH_CONTIGUOUS_FORMAT
    stream.raw(b"\x85R\x89tb")


def _storage(stream: PickleStream, entry: Stored, key: int) -> None:
    if isinstance(entry, StoredValue):
        _index(stream, key, None, None)
        _place(stream, entry.file, entry.offset, entry.length)
        return
    for number, chunk in enumerate(entry.chunks):
        _index(stream, key, number, chunk.offsets)
        _place(stream, chunk.file, chunk.offset, chunk.length)


def _index(stream: PickleStream, key: int, number: int | None, offsets: tuple[int, ...] | None) -> None:
    """Which chunk of what: `key` is where the reader stores the name."""

    def rest(stream: PickleStream) -> None:
        stream.text("index")
        stream.value(number)
        if offsets is not None:
            stream.text("offset")
            _size(stream, offsets)
        _end(stream)

    stream.repeat("index", _index_head)
    stream.fetch(key)
    stream.repeat((number, offsets), rest)


def _index_head(stream: PickleStream) -> None:
    _begin(stream, _METADATA, "MetadataIndex")
    stream.text("fqn")


def _place(stream: PickleStream, file: str, offset: int, length: int) -> None:
    def head(stream: PickleStream) -> None:
        _begin(stream, "torch.distributed.checkpoint.filesystem", "_StorageInfo")
        stream.text("relative_path")
        stream.text(file)
        stream.text("offset")

    stream.repeat(("place", file), head)
    stream.integer(offset)
    stream.text("length")
    stream.integer(length)
    _end(stream)
