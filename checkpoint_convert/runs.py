"""A tensor's elements as runs of bytes in files, each block read with its CRC-32.

What is written has the CRC-32 of what was read, so one is computed per block, and put together for the
record that was read and for the span that is written, wherever each begins and ends.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import TypeAlias

from isal.isal_zlib import crc32

from checkpoint_convert.file_bytes import read_blocks
from checkpoint_convert.model import TensorSource
from checkpoint_convert.stored_tensor import Storage, StoredTensor
from checkpoint_convert.tensor_sources import ConcatTensor, SliceTensor

Run: TypeAlias = "tuple[Storage, int, int]"
"""A storage, and where in its file a run of so many bytes begins."""


def file_runs(source: TensorSource, start: int, stop: int) -> list[Run] | None:
    """Elements `start` to `stop` in row-major order as runs; None where they do not lie in files so."""
    found: list[Run] = []
    return found if _collect(source, start, stop, found) else None


def _collect(source: TensorSource, start: int, stop: int, found: list[Run]) -> bool:
    while type(source) is SliceTensor:
        start, stop, source = start + source.offset, stop + source.offset, source.whole
    if type(source) is StoredTensor:
        item, storage = source.dtype.itemsize, source.storage
        found.append((storage, storage.position + (source.offset + start) * item, (stop - start) * item))
        return source.contiguous
    if type(source) is not ConcatTensor:
        return False
    index = max(0, bisect_right(source.starts, start) - 1)
    while start < stop:
        begin, end = source.starts[index], source.starts[index + 1]
        until = min(stop, end)
        if not _collect(source.parts[index], start - begin, until - begin, found):
            return False
        start, index = until, index + 1
    return True


def blocks_with_crc(runs: list[Run]) -> Iterator[tuple[memoryview, int]]:
    """The runs' bytes in blocks, each valid until the next is asked for, and the CRC-32 of each.

    Raises:
        UnreadableError: a file ends too early, or a record's bytes are not those it was written with.
    """
    for storage, position, size_bytes in runs:
        checksum = storage.checksum
        for block in read_blocks(storage.files, storage.path, position, size_bytes):
            crc = crc32(block)
            if checksum is not None:
                checksum.saw(position, block, crc)
                position += len(block)
            yield block, crc
