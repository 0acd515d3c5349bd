"""`.metadata`: the pickle that torch.distributed.checkpoint reads first, written by names, without torch.

Source: torch `distributed/checkpoint/metadata.py` (classes and `TensorProperties.__setstate__`),
`filesystem.py` (`_StorageInfo`), `torch/serialization.py` (`_get_layout`). torch 2.6 and later read it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from checkpoint_convert.items import dotted
from checkpoint_convert.model import DType
from checkpoint_convert.values import KeyPath
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
    _begin(stream, _METADATA, "Metadata")
    stream.text("state_dict_metadata")
    stream.raw(b"}(")
    for entry in stored():
        stream.text(dotted(entry.path))
        if isinstance(entry, StoredTensor):
            _tensor(stream, entry)
        else:
            _empty(stream, _METADATA, "BytesStorageMetadata")
    stream.raw(b"u")
    stream.text("planner_data")
    stream.raw(b"}(")
    for entry in stored():
        stream.text(dotted(entry.path))
        stream.value(entry.path)
    stream.raw(b"u")
    stream.text("storage_data")
    stream.raw(b"}(")
    for entry in stored():
        _storage(stream, entry)
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


def _empty(stream: PickleStream, module: str, name: str) -> None:
    stream.name(module, name)
    stream.raw(b")\x81")


def _size(stream: PickleStream, numbers: Sequence[int]) -> None:
    stream.name("torch", "Size")
    stream.integers(numbers)
    stream.raw(b"\x85R")


def _tensor(stream: PickleStream, entry: StoredTensor) -> None:
    _begin(stream, _METADATA, "TensorStorageMetadata")
    stream.text("properties")
    _properties(stream, entry.dtype)
    stream.text("size")
    _size(stream, entry.shape)
    stream.text("chunks")
    stream.raw(b"](")
    for chunk in entry.chunks:
        _begin(stream, _METADATA, "ChunkStorageMetadata")
        stream.text("offsets")
        _size(stream, chunk.offsets)
        stream.text("sizes")
        _size(stream, chunk.sizes)
        _end(stream)
    stream.raw(b"e")
    _end(stream)


def _properties(stream: PickleStream, dtype: DType) -> None:
    """`TensorProperties`: its state is (dtype, layout, requires_grad, memory format, pin_memory)."""
    _empty(stream, _METADATA, "TensorProperties")
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


def _storage(stream: PickleStream, entry: Stored) -> None:
    key = dotted(entry.path)
    if isinstance(entry, StoredValue):
        _index(stream, key)
        _end(stream)
        _place(stream, entry.file, entry.offset, entry.length)
        return
    for number, chunk in enumerate(entry.chunks):
        _index(stream, key, number)
        stream.text("offset")
        _size(stream, chunk.offsets)
        _end(stream)
        _place(stream, chunk.file, chunk.offset, chunk.length)


def _index(stream: PickleStream, key: str, number: int | None = None) -> None:
    _begin(stream, _METADATA, "MetadataIndex")
    stream.text("fqn")
    stream.text(key)
    stream.text("index")
    stream.value(number)


def _place(stream: PickleStream, file: str, offset: int, length: int) -> None:
    _begin(stream, "torch.distributed.checkpoint.filesystem", "_StorageInfo")
    stream.text("relative_path")
    stream.text(file)
    stream.text("offset")
    stream.integer(offset)
    stream.text("length")
    stream.integer(length)
    _end(stream)
