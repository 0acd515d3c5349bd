"""A torch.distributed.checkpoint directory, written without torch.

Every chunk of a tensor is an item: a small `torch.save` zip at an offset of a `.distcp` file. 0-dim tensors
and plain values stand together in `__0_0.distcp`; `__<rank>_<k>.distcp`, k from 1, hold the rest. Our own
writer, because torch's keeps every tensor of a file alive until the file is closed.
Source: torch `distributed/checkpoint/filesystem.py` (`FileSystemWriter`, `_write_item`).
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from checkpoint_convert import digest
from checkpoint_convert.items import Items, TensorItem
from checkpoint_convert.places import Places, as_they_are
from checkpoint_convert.values import KeyPath
from checkpoint_convert.write_options import FILE_BYTES, LEAST_FILE_BYTES, WriteOptions
from checkpoint_convert.writers.chunks import Chunk, cut
from checkpoint_convert.writers.dcp_metadata import StoredChunk, StoredTensor, StoredValue, write_metadata
from checkpoint_convert.writers.layout import PlannedFile, Span
from checkpoint_convert.writers.output import Output
from checkpoint_convert.writers.torch_zip import ALIGNMENT, object_archive, tensor_frame

METADATA_NAME = ".metadata"
_GATHERED_BYTES = 1 << 16


def _file_bytes(items: Items) -> int:
    """When a new file begins: after an eighth of all bytes, within bounds.

    Threads that write into one file wait for each other, so even a small checkpoint has a file for each.
    """
    whole = sum(item.size_bytes for item in items.tensors)
    return min(max(whole // 8, LEAST_FILE_BYTES), FILE_BYTES)


@dataclass(slots=True)
class _File:
    name: str
    size_bytes: int = 0
    items: int = 0

    def append(self, size_bytes: int) -> int:
        """Place an item; returns its offset, a multiple of `ALIGNMENT`."""
        offset = self.size_bytes + -self.size_bytes % ALIGNMENT
        self.size_bytes = offset + size_bytes
        self.items += 1
        return offset


class DcpLayout:
    """Where everything of `items` goes in a DCP directory; see `Layout`."""

    wants_crc = True

    def __init__(
        self, items: Items, options: WriteOptions, prefix: str = "__", places: Places = as_they_are
    ) -> None:
        self._items = items
        self._prefix = prefix
        self._places = places
        self._chunk_bytes = options.chunk_bytes
        self._ranks = options.shards or 1
        # With target ranks a file per rank; otherwise a new file every so many bytes.
        self._file_bytes = None if options.shards else (options.file_bytes or _file_bytes(items))
        self._files: list[_File] = []
        self._open: dict[int | None, int] = {}
        self._rotations: dict[int, int] = {}
        self._first_chunk = array("q")
        self._chunk_file = array("q")
        self._chunk_offset = array("q")
        self._objects: list[tuple[KeyPath, int, bytes]] = []
        self._place()
        self._left = [file.items for file in self._files]
        self._lock = threading.Lock()
        self.metadata_digest: bytes | None = None  # once `finish` has written it

    def _place(self) -> None:
        for leaf in self._items.objects:
            if not self._places(leaf.path):
                continue
            data = object_archive(leaf.value)
            number = self._file_for(None)
            self._objects.append((leaf.path, self._files[number].append(len(data)), data))
        for item in self._items.tensors:
            self._first_chunk.append(len(self._chunk_file))
            for chunk in self._cut(item):
                number = self._file_for(chunk.rank if item.source.shape else None)
                self._chunk_file.append(number)
                size = tensor_frame(item.dtype, chunk.sizes).size_bytes
                self._chunk_offset.append(self._files[number].append(size))
        self._first_chunk.append(len(self._chunk_file))

    def _cut(self, item: TensorItem) -> Sequence[Chunk]:
        return cut(item.source.shape, item.dtype.itemsize, self._chunk_bytes, self._ranks)

    def _file_for(self, rank: int | None) -> int:
        """The file that takes the next item of a target rank; None: scalars and plain values."""
        number = self._open.get(rank)
        if number is not None:
            limit = self._file_bytes
            if rank is None or limit is None or self._files[number].size_bytes < limit:
                return number
        if rank is None:
            name = self.scalars_name
        else:
            rotation = self._rotations.get(rank, 0) + 1
            self._rotations[rank] = rotation
            name = f"{self._prefix}{rank}_{rotation}.distcp"
        self._open[rank] = len(self._files)
        self._files.append(_File(name))
        return len(self._files) - 1

    @property
    def scalars_name(self) -> str:
        """The file of 0-dim tensors and plain values, where there are any."""
        return f"{self._prefix}0_0.distcp"

    @property
    def files(self) -> Sequence[PlannedFile]:
        """The `.distcp` files, in the order of their first item."""
        return [PlannedFile(file.name, file.size_bytes) for file in self._files]

    @property
    def tensors(self) -> Sequence[TensorItem]:
        """The tensors to write."""
        return self._items.tensors

    @property
    def chunk_count(self) -> int:
        """Items of tensors."""
        return len(self._chunk_file)

    @property
    def closing_bytes(self) -> int:
        """About the size of `.metadata`: it is written last and depends on the lengths of the names."""
        names = sum(len(part) for item in self._items.tensors for part in item.path if isinstance(part, str))
        return 1024 + 200 * self.chunk_count + 60 * len(self._objects) + 3 * names

    def begin(self, out: Output) -> None:
        """Write the plain values."""
        for _, offset, data in self._objects:
            number = self._open[None]
            out.write(number, offset, data)
            self._item_done(out, number)

    def spans(self, number: int) -> Iterator[Span]:
        """See `Layout`."""
        item = self._items.tensors[number]
        for key, chunk in enumerate(self._cut(item), self._first_chunk[number]):
            data = self._chunk_offset[key] + tensor_frame(item.dtype, chunk.sizes).data_offset
            yield Span(self._chunk_file[key], data, chunk.start, chunk.stop, key, chunk.sizes)

    def is_linked(self, number: int) -> bool:
        """Never."""
        return False

    def close_span(self, out: Output, number: int, span: Span, crc: int) -> None:
        """Write the zip around a chunk's bytes."""
        frame = tensor_frame(self._items.tensors[number].dtype, span.sizes)
        start = self._chunk_offset[span.key]
        out.write(span.file, start, frame.head(crc))
        tail = frame.tail(crc)
        out.write(span.file, start + frame.size_bytes - len(tail), tail)
        self._item_done(out, span.file)

    def note_done(self, out: Output, number: int, crcs: Sequence[int]) -> None:
        """See `Layout`."""
        for key in range(self._first_chunk[number], self._first_chunk[number + 1]):
            self._item_done(out, self._chunk_file[key])

    def _item_done(self, out: Output, file: int) -> None:
        with self._lock:
            self._left[file] -= 1
            done = self._left[file] == 0
        if done:
            out.close(file, self._files[file].size_bytes)

    def finish(self, out: Output) -> None:
        """Write `.metadata`: only now is the directory a checkpoint."""
        running, gathered = digest.new(), bytearray()  # a table of pieces of a few bytes each
        with out.stream(METADATA_NAME) as sink:

            def write(data: bytes) -> None:
                gathered.extend(data)
                if len(gathered) >= _GATHERED_BYTES:
                    pour()

            def pour() -> None:
                running.update(gathered)
                sink(bytes(gathered))
                gathered.clear()

            write_metadata(write, self.stored)
            pour()
        self.metadata_digest = running.digest()

    def value_places(self) -> Iterator[tuple[KeyPath, tuple[str, int, int]]]:
        """Plain values: file, offset and length of each item."""
        for path, offset, data in self._objects:
            yield path, (self._files[self._open[None]].name, offset, len(data))

    def stored(self) -> Iterator[StoredTensor | StoredValue]:
        """Everything in the directory, as `.metadata` lists it."""
        shared: dict[KeyPath, list[KeyPath]] = {}
        for alias in self._items.shared:
            shared.setdefault(alias.of, []).append(alias.path)
        for number, item in enumerate(self._items.tensors):
            for name in (item.path, *shared.get(item.path, ())):
                for path in self._places(name):
                    yield StoredTensor(path, item.dtype, item.source.shape, self.stored_chunks(number))
        for name, offset, data in self._objects:
            for path in self._places(name):
                yield StoredValue(path, self._files[self._open[None]].name, offset, len(data))

    def stored_chunks(self, number: int) -> Iterator[StoredChunk]:
        """The chunks of tensor `number`, and where they lie."""
        item = self._items.tensors[number]
        for key, chunk in enumerate(self._cut(item), self._first_chunk[number]):
            length = tensor_frame(item.dtype, chunk.sizes).size_bytes
            file = self._files[self._chunk_file[key]].name
            yield StoredChunk(chunk.offsets, chunk.sizes, file, self._chunk_offset[key], length)
