"""Bytes of files by position, through few open handles, with checksums verified on the way.

A conversion may touch thousands of rank files; at most `MAX_OPEN` of them are open at one time. Reading is
positioned (`preadv`), so threads may share a file.
"""

from __future__ import annotations

import mmap
import os
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from checkpoint_convert.errors import UnreadableError
from checkpoint_convert.model import BLOCK_BYTES

MAX_OPEN = 64

FETCHERS: dict[str, Callable[[int, int], bytes]] = {}
"""Stand-ins of remote files (`remote_source`) and what fetches their bytes, given start and count."""

FETCH_BYTES = 8 << 20
"""Asked of a remote file at a time: an answer takes as long to come as a few megabytes to arrive."""


class OpenFiles:
    """The handles of one conversion: opened on demand, the longest unused closed first. Thread-safe."""

    def __init__(self, limit: int = MAX_OPEN) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._handles: OrderedDict[str, int] = OrderedDict()  # paths compare slowly, text does not
        self._users: dict[str, int] = {}

    @contextmanager
    def borrow(self, path: Path) -> Iterator[int]:
        """A file descriptor of `path` that stays open for the `with` block."""
        name = str(path)
        with self._lock:
            handle = self._handles.get(name)
            if handle is None:
                self._close_idle(self._limit - 1)
                handle = self._handles[name] = _open(path)
            self._handles.move_to_end(name)
            self._users[name] = self._users.get(name, 0) + 1
        try:
            yield handle
        finally:
            with self._lock:
                self._users[name] -= 1

    def close(self) -> None:
        """Close what nobody reads."""
        with self._lock:
            self._close_idle(0)

    def _close_idle(self, keep: int) -> None:
        if len(self._handles) <= keep:
            return
        for name in [name for name in self._handles if not self._users.get(name)]:
            if len(self._handles) <= keep:
                break
            os.close(self._handles.pop(name))


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDONLY)
    except OSError as error:
        raise UnreadableError(
            f"{path}: cannot be opened: {error.strerror}", hint="Check the path and its permissions."
        ) from None


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
        return _LOCKS[hash(self.start) % len(_LOCKS)]

    def saw(self, position: int, data: memoryview) -> None:
        """Take note of bytes read at a file position.

        Raises:
            UnreadableError: the record is now complete and its CRC is another one.
        """
        if self.done or not len(data):
            return
        begin = position - self.start
        if begin == 0 and len(data) == self.size_bytes:
            self._finish(_crc32(data))
            return
        with self._lock:
            pieces = self._pieces = self._pieces or []
            if pieces and pieces[-1][1] == begin:  # in order, as nearly all is read
                first, _, crc = pieces[-1]
                pieces[-1] = (first, begin + len(data), _crc32(data, crc))
            else:
                self._fill_in(pieces, begin, data)
            if not self.done and pieces[0][:2] == (0, self.size_bytes):
                self._finish(pieces[0][2])

    def _fill_in(self, pieces: list[tuple[int, int, int]], begin: int, data: memoryview) -> None:
        for gap_from, gap_to in self._gaps(begin, begin + len(data)):
            _insert(pieces, gap_from, gap_to, _crc32(data[gap_from - begin : gap_to - begin]))

    def is_untouched(self) -> bool:
        """Whether nothing of the record was read yet."""
        return not self.done and self._pieces is None

    def saw_all(self, crc: int) -> None:
        """The whole record was read by somebody who computed its CRC on the way.

        Raises:
            UnreadableError: it is not the one the file promises.
        """
        self._finish(crc)

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
    from isal.isal_zlib import crc32_combine

    index = next((i for i, piece in enumerate(pieces) if piece[0] >= end), len(pieces))
    if index and pieces[index - 1][1] == begin:
        before = pieces.pop(index - 1)
        index -= 1
        begin, crc = before[0], crc32_combine(before[2], crc, end - begin)
    if index < len(pieces) and pieces[index][0] == end:
        after = pieces.pop(index)
        crc, end = crc32_combine(crc, after[2], after[1] - after[0]), after[1]
    pieces.insert(index, (begin, end, crc))


def _crc32(data: memoryview, before: int = 0) -> int:
    from isal.isal_zlib import crc32

    return int(crc32(data, before))


def read_at(files: OpenFiles, path: Path, position: int, count: int) -> bytes:
    """`count` bytes of a file.

    Raises:
        UnreadableError: the file ends before them.
    """
    fetch = FETCHERS.get(str(path))
    if fetch is not None:
        return _fetched(fetch, path, position, count)
    buffer = bytearray(count)
    with files.borrow(path) as handle:
        _fill(handle, path, memoryview(buffer), position)
    return bytes(buffer)


def read_blocks(
    files: OpenFiles, path: Path, position: int, count: int, checksum: Checksum | None = None
) -> Iterator[memoryview]:
    """The same in blocks of at most `BLOCK_BYTES`, each valid until the next is asked for."""
    if count <= 0:
        return
    fetch = FETCHERS.get(str(path))
    if fetch is not None:
        yield from _fetched_blocks(fetch, path, position, count, checksum)
        return
    with _block(count) as block, files.borrow(path) as handle:
        while count:
            view = block[: min(count, BLOCK_BYTES)]
            _fill(handle, path, view, position)
            if checksum is not None:
                checksum.saw(position, view)
            yield view
            position += len(view)
            count -= len(view)


_SPARE: list[mmap.mmap] = []
"""Blocks that were read into and are free again: fresh memory costs more than what is read into it.

They begin at a page: the kernel copies faster out of those.
"""

_MOST_SPARE = 16
_SMALL_BYTES = 32 << 10


def _fresh_block() -> mmap.mmap:
    """Memory of this process alone: as Python makes it, a forked process would write into the same."""
    if sys.platform == "win32":
        return mmap.mmap(-1, BLOCK_BYTES)
    return mmap.mmap(-1, BLOCK_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


@contextmanager
def _block(count: int) -> Iterator[memoryview]:
    """Memory for `count` bytes, or for as many as one block has."""
    if count <= _SMALL_BYTES:
        yield memoryview(bytearray(count))
        return
    try:
        block = _SPARE.pop()
    except IndexError:
        block = _fresh_block()
    try:
        yield memoryview(block)
    finally:
        if len(_SPARE) < _MOST_SPARE:
            _SPARE.append(block)


def _fetched_blocks(
    fetch: Callable[[int, int], bytes], path: Path, position: int, count: int, checksum: Checksum | None
) -> Iterator[memoryview]:
    for start in range(position, position + count, FETCH_BYTES):
        data = _fetched(fetch, path, start, min(FETCH_BYTES, position + count - start))
        for at in range(0, len(data), BLOCK_BYTES):
            view = memoryview(data)[at : at + BLOCK_BYTES]
            if checksum is not None:
                checksum.saw(start + at, view)
            yield view


def _fetched(fetch: Callable[[int, int], bytes], path: Path, position: int, count: int) -> bytes:
    data = fetch(position, count)
    if len(data) != count:
        raise UnreadableError(
            f"{path}: gave {len(data)} of {count} bytes at byte {position}",
            hint="The file was cut short, or its server does not serve parts of files.",
        )
    return data


def _fill(handle: int, path: Path, view: memoryview, position: int) -> None:
    done = 0
    while done < len(view):
        try:
            got = os.preadv(handle, [view[done:]], position + done)
        except OSError as error:
            raise UnreadableError(
                f"{path}: reading at byte {position + done} failed: {error.strerror}",
                hint="The file system reports an error; copy the file elsewhere and retry.",
            ) from None
        if not got:
            raise UnreadableError(
                f"{path}: ends at byte {position + done}, where {len(view) - done} more bytes should follow",
                hint="The file was cut short, perhaps while it was written or copied.",
            )
        done += got
