"""A chunk of a tensor in a distributed checkpoint, left in place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from checkpoint_convert.errors import UnreadableError
from checkpoint_convert.file_bytes import OpenFiles
from checkpoint_convert.model import DType
from checkpoint_convert.readers.find import METADATA
from checkpoint_convert.readers.strange_tensors import refuse_strange_tensors
from checkpoint_convert.stored_tensor import StoredTensor


@dataclass(frozen=True, slots=True)
class Item:
    """Where one chunk or object lies: file, and the window in it that holds its archive."""

    path: Path
    start: int
    size_bytes: int


@dataclass(slots=True, eq=False)
class ChunkTensor:
    """A chunk of a tensor; the archive that holds it is opened when its bytes are asked for."""

    files: OpenFiles
    item: Item
    dtype: DType
    shape: tuple[int, ...]
    name: str
    _stored: StoredTensor | None = field(default=None, repr=False)

    def blocks(self, start: int, stop: int) -> Iterator[memoryview]:
        """See `TensorSource.blocks`."""
        stored = self._stored = self._stored or self._open()
        yield from stored.blocks(start, stop)
        checksum = stored.storage.checksum
        if checksum is None or checksum.done:  # until then the pieces of its checksum are kept
            self._stored = None

    def _open(self) -> StoredTensor:
        from checkpoint_convert.torch_item import read_item

        value = read_item(self.files, self.item.path, self.item.start, self.item.size_bytes)
        refuse_strange_tensors(((self.name, value),), self.item.path)
        if not isinstance(value, StoredTensor) or (value.dtype, value.shape) != (self.dtype, self.shape):
            raise UnreadableError(
                f"{self.item.path}, item at byte {self.item.start}: is not the chunk of {self.name} that "
                f"{METADATA} promises (size {self.shape}, {self.dtype.torch_name})",
                hint="The directory is damaged, or its files are of different saves.",
            )
        return value
