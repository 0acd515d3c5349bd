"""One `torch.save` file, written as a stream: `{"model": ..., "optim": ..., <extras>}`.

The pickle comes first, because all dtypes and shapes are known; then every storage, aligned to 64 bytes; then
the zip's directory. Tied names share one storage, as `torch.save` would have it. Of a tensor only numbers are
kept, for there may be hundreds of thousands.
Source: torch `torch/serialization.py` (`_save`).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

from checkpoint_convert import digest
from checkpoint_convert.items import Items, TensorItem
from checkpoint_convert.model import TensorSource, Value, numel, size_bytes
from checkpoint_convert.values import KeyPath
from checkpoint_convert.writers import torch_zip
from checkpoint_convert.writers.layout import PlannedFile, Span
from checkpoint_convert.writers.output import Output
from checkpoint_convert.writers.pickle_stream import PickleStream
from checkpoint_convert.writers.torch_zip import VERSION, Record

_ROOT = "archive"
_PIECE_BYTES = 1 << 20


class TorchFileLayout:
    """Where everything of `items` goes in one file; see `Layout`.

    Attributes:
        inline: small tensors that stand inside tuples; their storages follow those of the items.
        head_digest, directory_digest: of what stands before and after the storages, once it is written.
    """

    wants_crc = True
    closing_bytes = 0

    def __init__(self, items: Items, name: str) -> None:
        self._items = items
        self._name = name
        self.inline: list[TensorSource] = []
        self.head_digest: bytes | None = None
        self.directory_digest: bytes | None = None
        self._header_at, self._data_at = array("Q"), array("Q")
        self._end = 0
        self._head: list[tuple[Record, int]] = []
        self._pickled: bytearray | None = self._pickle()
        self._append("data.pkl", self._pickled)
        self._append("byteorder", torch_zip.BYTEORDER)
        for number, item in enumerate(items.tensors):
            self._append_storage(number, item.size_bytes)
        for number, tensor in enumerate(self.inline, len(items.tensors)):
            self._append_storage(number, size_bytes(tensor))
        self._version = torch_zip.place(f"{_ROOT}/version", len(VERSION), self._end)
        self.crcs = array("Q", [0] * len(self._data_at))
        self.directory_at = self._version.data_offset + self._version.size_bytes
        count, size = 0, 0
        for record, _ in self._entries():
            count, size = count + 1, size + torch_zip.central_entry_bytes(record)
        size += len(torch_zip.central_end(count, size, self.directory_at))
        self.files: Sequence[PlannedFile] = [PlannedFile(name, self.directory_at + size)]

    def _append(self, name: str, data: bytes | bytearray) -> None:
        record = torch_zip.place(f"{_ROOT}/{name}", len(data), self._end)
        self._head.append((record, torch_zip.crc32(data)))
        self._end = record.data_offset + record.size_bytes

    def _append_storage(self, number: int, size: int) -> None:
        record = torch_zip.place(f"{_ROOT}/data/{number}", size, self._end, aligned=True)
        self._header_at.append(record.header_offset)
        self._data_at.append(record.data_offset)
        self._end = record.data_offset + size

    def storage(self, number: int) -> Record:
        """The record of a tensor of the items, or after them of one of `inline`."""
        count = len(self._items.tensors)
        is_item = number < count
        size = self._items.tensors[number].size_bytes if is_item else size_bytes(self.inline[number - count])
        return Record(f"{_ROOT}/data/{number}", self._header_at[number], self._data_at[number], size)

    @property
    def head_bytes(self) -> int:
        """Before the first storage."""
        record, _ = self._head[-1]
        return record.data_offset + record.size_bytes

    def _entries(self) -> Iterator[tuple[Record, int]]:
        """All records and their CRC-32, in the order of the directory."""
        yield from self._head
        for number in range(len(self._data_at)):
            yield self.storage(number), self.crcs[number]
        yield self._version, torch_zip.crc32(VERSION)

    def _pickle(self) -> bytearray:
        out = bytearray()
        numbers = self._numbers_of_shared()
        stream = PickleStream(out.extend, self._push_inline)
        _Tree(self._items, numbers).push(stream)
        stream.stop()
        return out

    def _numbers_of_shared(self) -> dict[KeyPath, int]:
        firsts = {shared.of for shared in self._items.shared}
        return {item.path: n for n, item in enumerate(self._items.tensors) if item.path in firsts}

    def _push_inline(self, stream: PickleStream, tensor: TensorSource) -> None:
        number = len(self._items.tensors) + len(self.inline)
        self.inline.append(tensor)
        torch_zip.push_tensor(stream, tensor.dtype, tensor.shape, str(number))

    @property
    def tensors(self) -> Sequence[TensorItem]:
        """The tensors to write."""
        return self._items.tensors

    @property
    def chunk_count(self) -> int:
        """Storages."""
        return len(self._data_at)

    def begin(self, out: Output) -> None:
        """Write the pickle, which is not kept, and the small tensors that stand inside tuples."""
        pickled, self._pickled = self._pickled, None
        assert pickled is not None
        running = digest.new()
        for (record, crc), data in zip(self._head, (pickled, torch_zip.BYTEORDER), strict=True):
            header = torch_zip.local_header(record, crc)
            out.write(0, record.header_offset, header)
            running.update(header)
            for at in range(0, len(data), _PIECE_BYTES):
                piece = bytes(data[at : at + _PIECE_BYTES])
                out.write(0, record.data_offset + at, piece)
                running.update(piece)
        self.head_digest = running.digest()
        for number, tensor in enumerate(self.inline, len(self._items.tensors)):
            data = b"".join(bytes(block) for block in tensor.blocks(0, numel(tensor.shape)))
            out.write(0, self._data_at[number], data)
            self._close(out, number, torch_zip.crc32(data))

    def spans(self, number: int) -> Iterator[Span]:
        """See `Layout`."""
        shape = self._items.tensors[number].source.shape
        yield Span(0, self._data_at[number], 0, numel(shape))

    def is_linked(self, number: int) -> bool:
        """Never."""
        return False

    def close_span(self, out: Output, number: int, span: Span, crc: int) -> None:
        """Write the header before a storage."""
        self._close(out, number, crc)

    def _close(self, out: Output, number: int, crc: int) -> None:
        self.crcs[number] = crc
        out.write(0, self._header_at[number], torch_zip.local_header(self.storage(number), crc))

    def note_done(self, out: Output, number: int, crcs: Sequence[int]) -> None:
        """Its CRC-32 goes into the zip's directory."""
        (self.crcs[number],) = crcs

    def finish(self, out: Output) -> None:
        """Write the zip's directory: only now is the file an archive."""
        header = torch_zip.local_header(self._version, torch_zip.crc32(VERSION))
        out.write(0, self._version.header_offset, header + VERSION)
        running, at, waiting = digest.new(), self.directory_at, bytearray()
        for entry in torch_zip.central_directory(self._entries(), self.directory_at):
            waiting += entry
            if len(waiting) >= _PIECE_BYTES:
                running.update(waiting)
                out.write(0, at, bytes(waiting))
                at, waiting = at + len(waiting), bytearray()
        running.update(waiting)
        out.write(0, at, bytes(waiting))
        self.directory_digest = running.digest()
        out.close(0, self.files[0].size_bytes)


class _Tree:
    """The nested whole: dictionaries whose leaves are numbers of tensors, or values."""

    def __init__(self, items: Items, shared: dict[KeyPath, int]) -> None:
        self._items = items
        self._shared = frozenset(shared.values())
        # Names of a model stand once more in an optimizer; else remembering them is for nothing.
        paths = (entry.path for entries in (items.tensors, items.objects) for entry in entries)
        self._are_said_again = any(path[0] == items.optim_key for path in paths)
        self._root: dict[object, object] = {}
        for number, item in enumerate(items.tensors):
            self._plant(item.path, number)
        for alias in items.shared:
            self._plant(alias.path, shared[alias.of])
        for leaf in items.objects:
            self._plant(leaf.path, _Whole(leaf.value))

    def _plant(self, path: KeyPath, leaf: object) -> None:
        node = self._root
        for key in path[:-1]:
            below = node.setdefault(key, {})
            assert isinstance(below, dict)
            node = below
        node[path[-1]] = leaf

    def push(self, stream: PickleStream) -> None:
        """Push the whole."""
        self._push(stream, self._root)

    def _push(self, stream: PickleStream, node: object) -> None:
        if isinstance(node, _Whole):
            stream.value(node.value)
        elif isinstance(node, int):
            item, is_shared = self._items.tensors[node], node in self._shared
            shape = item.source.shape
            torch_zip.push_tensor(stream, item.dtype, shape, str(node), is_shared=is_shared)
        elif isinstance(node, dict) and node and all(isinstance(key, int) for key in node):
            # Where the keys were positions is a list; a position that was left out is None.
            stream.raw(b"](")
            for key in range(max(node) + 1):
                self._push(stream, node.get(key, _NOTHING))
            stream.raw(b"e")
        elif isinstance(node, dict):  # only a file without anything is empty
            stream.raw(b"}(")
            for key, below in node.items():
                if self._are_said_again or not isinstance(key, str):
                    stream.value(key)
                elif not stream.recall(key):
                    stream.new_text(key)
                self._push(stream, below)
            stream.raw(b"u")


class _Whole:
    """A leaf, so that a mapping that is a value is not taken for a part of the tree."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value


_NOTHING = _Whole(None)
