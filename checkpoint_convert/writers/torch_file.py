"""One `torch.save` file, written as a stream: `{"model": ..., "optim": ..., <extras>}`.

The pickle comes first, because all dtypes and shapes are known; then every storage, aligned to 64 bytes; then
the zip's directory. Tied names share one storage, as `torch.save` would have it.
Source: torch `torch/serialization.py` (`_save`).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

from checkpoint_convert.items import Items, TensorItem
from checkpoint_convert.model import DType, TensorSource, Value, numel, size_bytes
from checkpoint_convert.values import KeyPath
from checkpoint_convert.writers import torch_zip
from checkpoint_convert.writers.layout import PlannedFile, Span
from checkpoint_convert.writers.output import Output
from checkpoint_convert.writers.pickle_stream import PickleStream

_ROOT = "archive"


class _Placed:
    """A tensor of the tree whose bytes are a planned storage; never read itself."""

    def __init__(self, number: int, dtype: DType, shape: tuple[int, ...]) -> None:
        self.number = number
        self.dtype = dtype
        self.shape = shape

    def blocks(self, start: int, stop: int) -> Iterator[memoryview]:
        """See `TensorSource.blocks`; there is nothing to read."""
        raise AssertionError("a placed tensor has no bytes of its own")


class TorchFileLayout:
    """Where everything of `items` goes in one file; see `Layout`."""

    wants_crc = True
    closing_bytes = 0

    def __init__(self, items: Items, name: str) -> None:
        self._items = items
        self._name = name
        self._inline: list[TensorSource] = []
        self._head: list[tuple[torch_zip.Record, bytes]] = []
        self._storages: list[torch_zip.Record] = []
        self._end = 0
        self._append("data.pkl", self._pickle())
        self._append("byteorder", b"little")
        for number, item in enumerate(items.tensors):
            self._append_storage(number, item.size_bytes)
        for number, tensor in enumerate(self._inline, len(items.tensors)):
            self._append_storage(number, size_bytes(tensor))
        self._version = torch_zip.place(f"{_ROOT}/version", len(torch_zip.VERSION), self._end)
        self._crcs = array("Q", [0] * len(self._storages))
        self._directory = self._version.data_offset + self._version.size_bytes
        size = self._directory + len(self._central())
        self.files: Sequence[PlannedFile] = [PlannedFile(name, size)]

    def _append(self, name: str, data: bytes) -> None:
        record = torch_zip.place(f"{_ROOT}/{name}", len(data), self._end)
        self._head.append((record, data))
        self._end = record.data_offset + record.size_bytes

    def _append_storage(self, number: int, size: int) -> None:
        record = torch_zip.place(f"{_ROOT}/data/{number}", size, self._end, aligned=True)
        self._storages.append(record)
        self._end = record.data_offset + record.size_bytes

    def _pickle(self) -> bytes:
        out = bytearray()
        stream = PickleStream(out.extend, self._push)
        stream.value(self._tree())
        stream.stop()
        return bytes(out)

    def _push(self, stream: PickleStream, tensor: TensorSource) -> None:
        if isinstance(tensor, _Placed):
            number = tensor.number
        else:  # inside a tuple, so not an item of its own
            number = len(self._items.tensors) + len(self._inline)
            self._inline.append(tensor)
        torch_zip.push_tensor(stream, tensor.dtype, tensor.shape, str(number))

    def _tree(self) -> Value:
        root: dict[object, object] = {}
        placed: dict[KeyPath, _Placed] = {}
        for number, item in enumerate(self._items.tensors):
            placed[item.path] = _Placed(number, item.dtype, item.source.shape)
            _plant(root, item.path, placed[item.path])
        for shared in self._items.shared:
            _plant(root, shared.path, placed[shared.of])
        for leaf in self._items.objects:
            _plant(root, leaf.path, leaf.value)
        return _grown(root)

    @property
    def tensors(self) -> Sequence[TensorItem]:
        """The tensors to write."""
        return self._items.tensors

    @property
    def chunk_count(self) -> int:
        """Storages."""
        return len(self._storages)

    def begin(self, out: Output) -> None:
        """Write the pickle, and the small tensors that stand inside tuples."""
        for record, data in self._head:
            out.write(0, record.header_offset, torch_zip.local_header(record, torch_zip.crc32(data)) + data)
        for number, tensor in enumerate(self._inline, len(self._items.tensors)):
            data = b"".join(bytes(block) for block in tensor.blocks(0, numel(tensor.shape)))
            out.write(0, self._storages[number].data_offset, data)
            self._close(out, number, torch_zip.crc32(data))

    def spans(self, number: int) -> Iterator[Span]:
        """See `Layout`."""
        shape = self._items.tensors[number].source.shape
        yield Span(0, self._storages[number].data_offset, 0, numel(shape))

    def is_linked(self, number: int) -> bool:
        """Never."""
        return False

    def close_span(self, out: Output, number: int, span: Span, crc: int) -> None:
        """Write the header before a storage."""
        self._close(out, number, crc)

    def _close(self, out: Output, number: int, crc: int) -> None:
        self._crcs[number] = crc
        record = self._storages[number]
        out.write(0, record.header_offset, torch_zip.local_header(record, crc))

    def note_done(self, out: Output, number: int, crcs: Sequence[int]) -> None:
        """Its CRC-32 goes into the zip's directory."""
        (self._crcs[number],) = crcs

    def finish(self, out: Output) -> None:
        """Write the zip's directory: only now is the file an archive."""
        version = torch_zip.VERSION
        header = torch_zip.local_header(self._version, torch_zip.crc32(version))
        out.write(0, self._version.header_offset, header + version)
        out.write(0, self._directory, self._central())
        out.close(0, self.files[0].size_bytes)

    def _central(self) -> bytes:
        records = [*(record for record, _ in self._head), *self._storages, self._version]
        crcs = [
            *(torch_zip.crc32(data) for _, data in self._head),
            *self._crcs,
            torch_zip.crc32(torch_zip.VERSION),
        ]
        return torch_zip.central_directory(records, crcs, self._directory)


def _plant(root: dict[object, object], path: KeyPath, value: object) -> None:
    node = root
    for key in path[:-1]:
        below = node.setdefault(key, {})
        assert isinstance(below, dict)
        node = below
    node[path[-1]] = _Whole(value)


class _Whole:
    """A leaf, so that a mapping that is a value is not taken for a part of the tree."""

    def __init__(self, value: object) -> None:
        self.value = value


def _grown(node: object) -> Value:
    """The tree with lists where the keys were positions; a position that was left out is None."""
    if isinstance(node, _Whole):
        return node.value  # type: ignore[return-value]  # planted as a Value
    assert isinstance(node, dict)
    if node and all(isinstance(key, int) for key in node):  # only a file without anything is empty
        return [_grown(node[key]) if key in node else None for key in range(max(node) + 1)]
    return {key: _grown(below) for key, below in node.items()}
