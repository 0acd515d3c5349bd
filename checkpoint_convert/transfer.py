"""The stream: blocks are read, digested, converted where asked, written where the layout says."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from isal.isal_zlib import crc32, crc32_combine

from checkpoint_convert import digest
from checkpoint_convert.casting import Cast, cast_between
from checkpoint_convert.errors import UnreadableError
from checkpoint_convert.parallel import Workers
from checkpoint_convert.progress import Progress
from checkpoint_convert.runs import blocks_with_crc, file_runs
from checkpoint_convert.values import dotted
from checkpoint_convert.writers.layout import Layout, Span
from checkpoint_convert.writers.output import Output


@dataclass(frozen=True, slots=True)
class Digests:
    """Of one tensor, 16 bytes each: as read, and as written.

    Both are empty for a tensor whose bytes stayed in the source's file.
    """

    read: bytes
    written: bytes


_SIZE = 16
_KNOWN, _LINKED = 1, 2


class DigestTable(Mapping[int, Digests]):
    """Digests by tensor number, in bytes and not in objects: there may be hundreds of thousands.

    Args:
        count: tensors there are.
    """

    def __init__(self, count: int) -> None:
        self._known = bytearray(count)
        self._read = bytearray(count * _SIZE)
        self._written = bytearray(count * _SIZE)

    def put(self, number: int, digests: Digests) -> None:
        """Take note of a tensor's digests. Several threads may, of different tensors."""
        if digests.read:
            at = slice(number * _SIZE, (number + 1) * _SIZE)
            self._read[at], self._written[at] = digests.read, digests.written
        self._known[number] = _KNOWN if digests.read else _LINKED

    def __getitem__(self, number: int) -> Digests:
        known = self._known[number] if 0 <= number < len(self._known) else 0
        if known == 0:
            raise KeyError(number)
        if known == _LINKED:
            return Digests(b"", b"")
        at = slice(number * _SIZE, (number + 1) * _SIZE)
        return Digests(bytes(self._read[at]), bytes(self._written[at]))

    def __iter__(self) -> Iterator[int]:
        return (number for number, known in enumerate(self._known) if known)

    def __len__(self) -> int:
        return len(self._known) - self._known.count(0)


Note: TypeAlias = "Callable[[int, Digests, tuple[int, ...]], None]"
"""Called when a tensor stands: its number, its digests, the CRC-32 of its spans."""


def transfer(
    layout: Layout,
    out: Output,
    workers: Workers,
    progress: Progress,
    numbers: Sequence[int] | None = None,
    note: Note | None = None,
) -> DigestTable:
    """Write tensors of a layout, between its `begin` and its `finish`.

    Args:
        numbers: which; None means all.

    Returns:
        The digests, by tensor number.

    Raises:
        UnreadableError: a source gave fewer or more bytes than its shape says.
        OSError: as the system has it.
    """
    chosen = range(len(layout.tensors)) if numbers is None else numbers
    done = DigestTable(len(layout.tensors))

    def work(index: int) -> None:
        number = chosen[index]
        tensor = _Tensor(layout, number, out, workers, progress)
        digests = tensor.copy()
        done.put(number, digests)
        if note is not None:
            note(number, digests, tuple(tensor.crcs))

    workers.run(work, array("q", (layout.tensors[number].size_bytes for number in chosen)))
    return done


class _Tensor:
    """One tensor under way."""

    def __init__(
        self, layout: Layout, number: int, out: Output, workers: Workers, progress: Progress
    ) -> None:
        self._layout = layout
        self._number = number
        self._item = layout.tensors[number]
        self._out = out
        self._workers = workers
        self._progress = progress
        self._source = self._item.source
        self._cast: Cast | None = cast_between(self._source.dtype, self._item.dtype)
        self._read = digest.new()
        self._written = digest.new() if self._cast else self._read
        self.crcs: list[int] = []

    def copy(self) -> Digests:
        """Write all spans."""
        if self._layout.is_linked(self._number):
            self._progress.advance(self._item.size_bytes)
            return Digests(b"", b"")
        for span in self._layout.spans(self._number):
            crc = self._copy_span(span)
            self._layout.close_span(self._out, self._number, span, crc)
            self.crcs.append(crc)
        read = self._read.digest()
        return Digests(read, self._written.digest() if self._cast else read)

    def _copy_span(self, span: Span) -> int:
        check, write, advance = self._workers.check, self._out.write, self._progress.advance
        file, offset, crc, update = span.file, span.offset, 0, self._written.update
        read_item, written_item = self._source.dtype.itemsize, self._item.dtype.itemsize
        for block, of_block in self._blocks(span):
            check()
            size = len(block)
            update(block)
            write(file, offset, block)
            offset += size
            crc = crc32_combine(crc, of_block, size)
            advance(size // written_item * read_item)
        given, expected = (offset - span.offset) // written_item, span.stop - span.start
        if given != expected:
            raise UnreadableError(
                f"{dotted(self._item.path)}: elements {span.start} to {span.stop} are "
                f"{expected * read_item} bytes, the source gave {given * read_item}",
                hint="the source file is damaged, or is being written",
            )
        return crc

    def _blocks(self, span: Span) -> Iterator[tuple[memoryview, int]]:
        """What is to be written, and the CRC-32 of each block; 0 where nobody wants to know."""
        if self._cast is None and self._layout.wants_crc:
            runs = file_runs(self._source, span.start, span.stop)
            if runs is not None:
                return blocks_with_crc(runs)
        return self._other_blocks(span)

    def _other_blocks(self, span: Span) -> Iterator[tuple[memoryview, int]]:
        cast, wants_crc = self._cast, self._layout.wants_crc
        for block in self._source.blocks(span.start, span.stop):
            if cast is not None:
                self._read.update(block)
                block = cast(block)
            yield block, crc32(block) if wants_crc else 0
