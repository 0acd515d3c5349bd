"""The CRC-32 that a zip promises of a record, held against the record's bytes as they are read.

Torch never does: a flipped byte loads there without a word.
"""

from __future__ import annotations

import threading
from pathlib import Path

from isal.isal_zlib import crc32, crc32_combine

from checkpoint_convert.errors import UnreadableError

_ALIGNED = 64
"""Records begin at multiples of so many bytes, as torch writes them."""

_LOCKS = tuple(threading.Lock() for _ in range(64))
"""Shared by all checksums, of which there may be hundreds of thousands."""


class Checksum:
    """CRC-32 of one zip record, put together from the pieces of it that were read, in any order. Thread-safe.

    Attributes:
        path, name: file and record, for messages.
        start, size_bytes: where the record's data lies in its file.
        expected: the CRC the file promises.
    """

    __slots__ = ("_pieces", "done", "expected", "name", "path", "size_bytes", "start")

    def __init__(self, path: Path, name: str, start: int, size_bytes: int, expected: int) -> None:
        self.path, self.name = path, name
        self.start, self.size_bytes, self.expected = start, size_bytes, expected
        self.done = False
        self._pieces: list[tuple[int, int, int]] | None = None  # (from, to, crc): sorted, disjoint, apart

    @property
    def _lock(self) -> threading.Lock:
        return _LOCKS[self.start // _ALIGNED % len(_LOCKS)]

    def saw(self, position: int, data: memoryview, crc: int | None = None) -> None:
        """Take note of bytes read at a file position.

        Args:
            crc: the CRC-32 of `data`, where it is known.

        Raises:
            UnreadableError: the record is now complete and its CRC is another one.
        """
        size = len(data)
        if self.done or not size:
            return
        begin = position - self.start
        if begin == 0 and size == self.size_bytes:
            self._finish(crc32(data) if crc is None else crc)
            return
        with self._lock:
            pieces = self._pieces = self._pieces or []
            if pieces and pieces[-1][1] == begin:  # in order, as nearly all is read
                first, _, before = pieces[-1]
                after = crc32(data, before) if crc is None else crc32_combine(before, crc, size)
                pieces[-1] = (first, begin + size, after)
            else:
                self._fill_in(pieces, begin, data, crc)
            if not self.done and pieces[0][:2] == (0, self.size_bytes):
                self._finish(pieces[0][2])

    def _fill_in(
        self, pieces: list[tuple[int, int, int]], begin: int, data: memoryview, crc: int | None
    ) -> None:
        for gap_from, gap_to in self._gaps(begin, begin + len(data)):
            if crc is None or gap_to - gap_from < len(data):
                _insert(pieces, gap_from, gap_to, crc32(data[gap_from - begin : gap_to - begin]))
            else:
                _insert(pieces, gap_from, gap_to, crc)

    def _finish(self, crc: int) -> None:
        self.done, self._pieces = True, None
        if crc != self.expected:
            raise UnreadableError(
                f"{self.path}, record {self.name}: its bytes do not match the CRC-32 stored with them "
                f"({crc:08x}, should be {self.expected:08x})",
                hint="The file was damaged after it was written. Take another copy of it.",
            )

    def unseen(self) -> list[tuple[int, int]]:
        """File positions of what is still missing, if reading has begun; nothing otherwise."""
        with self._lock:
            if self.done or not self._pieces:
                return []
            return [(self.start + a, self.start + b) for a, b in self._gaps(0, self.size_bytes)]

    def _gaps(self, begin: int, end: int) -> list[tuple[int, int]]:
        gaps, at = [], begin
        for piece_from, piece_to, _ in self._pieces or ():
            if piece_to <= at:
                continue
            if piece_from >= end:
                break
            if piece_from > at:
                gaps.append((at, piece_from))
            at = piece_to
        if at < end:
            gaps.append((at, end))
        return gaps


def _insert(pieces: list[tuple[int, int, int]], begin: int, end: int, crc: int) -> None:
    """Enter a piece, joined with those it touches."""
    index = next((i for i, piece in enumerate(pieces) if piece[0] >= end), len(pieces))
    if index and pieces[index - 1][1] == begin:
        before = pieces.pop(index - 1)
        index -= 1
        begin, crc = before[0], crc32_combine(before[2], crc, end - begin)
    if index < len(pieces) and pieces[index][0] == end:
        after = pieces.pop(index)
        crc, end = crc32_combine(crc, after[2], after[1] - after[0]), after[1]
    pieces.insert(index, (begin, end, crc))
