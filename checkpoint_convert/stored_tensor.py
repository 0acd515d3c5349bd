"""A tensor whose bytes lie in a file: where its storage is, and how it views it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from checkpoint_convert.checksum import Checksum
from checkpoint_convert.errors import UnreadableError
from checkpoint_convert.file_bytes import OpenFiles, read_blocks
from checkpoint_convert.model import DType, numel
from checkpoint_convert.strided import strided_blocks

_EXPANDED_BYTES = 64 << 20
"""A view that repeats its storage (stride 0) may not grow past this: no real checkpoint does."""


@dataclass(slots=True, eq=False)
class Storage:
    """A run of bytes that tensors view; compared by identity, which is what makes two tensors share memory.

    Attributes:
        position: where it begins in the file; set late for the legacy format, whose bytes come last.
        size_bytes: its length; the same.
        checksum: verifies the bytes as they are read; None where the file holds none.
        location: torch's location tag, of the device that the saver had it on (`cpu`, `cuda:0`).
    """

    files: OpenFiles
    path: Path
    position: int
    size_bytes: int
    checksum: Checksum | None = None
    location: str = "cpu"


@dataclass(frozen=True, slots=True, eq=False)
class StoredTensor:
    """A view of a storage: torch's `(storage, storage_offset, size, stride)`.

    Attributes:
        offset: in elements from the storage's begin.
        stride: in elements, per dimension.
        contiguous: whether the elements lie in the file in row-major order.
    """

    storage: Storage
    dtype: DType
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int = 0
    contiguous: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "contiguous", is_contiguous(self.shape, self.stride))

    def blocks(self, start: int, stop: int) -> Iterator[memoryview]:
        """See `TensorSource.blocks`."""
        if self.contiguous:
            return self._run(self.offset + start, stop - start)
        span = extent(self.shape, self.stride)

        def memory() -> Iterator[memoryview]:
            return self._run(self.offset, span)

        return strided_blocks(memory, span, self.dtype.itemsize, self.shape, self.stride, start, stop)

    def _run(self, first: int, count: int) -> Iterator[memoryview]:
        item, storage = self.dtype.itemsize, self.storage
        position = storage.position + first * item
        return read_blocks(storage.files, storage.path, position, count * item, storage.checksum)


def is_contiguous(shape: Sequence[int], stride: Sequence[int]) -> bool:
    """Whether the elements lie one after another in row-major order, as torch's `is_contiguous` counts."""
    if 0 in shape:
        return True
    expected = 1
    for size, step in zip(reversed(shape), reversed(stride), strict=True):
        if size != 1 and step != expected:
            return False
        expected *= size
    return True


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a contiguous tensor."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def extent(shape: Sequence[int], stride: Sequence[int]) -> int:
    """Elements of storage from a tensor's first to its last element, both included."""
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))


def check_view(tensor: StoredTensor, where: str) -> None:
    """Hold a view against its storage.

    Raises:
        UnreadableError: a negative size or stride, or elements outside the storage.
    """
    sizes = (*tensor.shape, *tensor.stride, tensor.offset)
    if len(tensor.shape) != len(tensor.stride) or any(size < 0 for size in sizes):
        raise UnreadableError(
            f"{where}: a tensor has size {tensor.shape} and stride {tensor.stride} at offset {tensor.offset}",
            hint="torch.save never writes this: the file is damaged or forged.",
        )
    item = tensor.dtype.itemsize
    needed = (tensor.offset + extent(tensor.shape, tensor.stride)) * item
    if numel(tensor.shape) and needed > tensor.storage.size_bytes:
        raise UnreadableError(
            f"{where}: a tensor of size {tensor.shape} reaches {needed} bytes into a storage of "
            f"{tensor.storage.size_bytes}",
            hint="The file is damaged or forged.",
        )
    if numel(tensor.shape) * item > max(needed, _EXPANDED_BYTES):
        raise UnreadableError(
            f"{where}: a tensor of size {tensor.shape} repeats its {needed} bytes over and over",
            hint="The file is damaged or forged.",
        )
