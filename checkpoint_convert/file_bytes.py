"""Bytes of files by position, through few open handles, with checksums verified on the way.

A conversion may touch thousands of rank files; at most `MAX_OPEN` of them are open at one time. Reading is
positioned (`preadv`), so threads may share a file.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from checkpoint_convert.checksum import Checksum
from checkpoint_convert.errors import UnreadableError
from checkpoint_convert.model import BLOCK_BYTES

MAX_OPEN = 64

FETCHERS: dict[str, Callable[[int, int], bytes]] = {}
"""Stand-ins of remote files (`remote_source`) and what fetches their bytes, given start and count."""

IDENTITIES: dict[str, str] = {}
"""Stand-ins of remote files, and what tells such a file and its state from others in every run."""


def identity(path: Path) -> str:
    """What names a file in every run: its path, or the URL it stands for and the state of what is there."""
    name = str(path)
    return IDENTITIES.get(name, name)


FETCH_BYTES = 8 << 20
"""Asked of a remote file at a time: an answer takes as long to come as a few megabytes to arrive."""


class OpenFiles:
    """The handles of one conversion: opened on demand, the longest unused closed first. Thread-safe."""

    def __init__(self, limit: int = MAX_OPEN) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._handles: OrderedDict[str, int] = OrderedDict()  # paths compare slowly, text does not
        self._users: dict[str, int] = {}

    def take(self, path: Path) -> int:
        """A file descriptor of `path` that stays open until it is given back."""
        name = str(path)
        with self._lock:
            handle = self._handles.get(name)
            if handle is None:
                self._close_idle(self._limit - 1)
                handle = self._handles[name] = _open(path)
            self._handles.move_to_end(name)
            self._users[name] = self._users.get(name, 0) + 1
        return handle

    def give_back(self, path: Path) -> None:
        """Whoever took it needs it no more."""
        with self._lock:
            self._users[str(path)] -= 1

    @contextmanager
    def borrow(self, path: Path) -> Iterator[int]:
        """A file descriptor of `path` that stays open for the `with` block."""
        handle = self.take(path)
        try:
            yield handle
        finally:
            self.give_back(path)

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


def read_at(files: OpenFiles, path: Path, position: int, count: int) -> bytes:
    """`count` bytes of a file.

    Raises:
        UnreadableError: the file ends before them.
    """
    fetch = FETCHERS.get(str(path))
    if fetch is not None:
        return _fetched(fetch, path, position, count)
    with files.borrow(path) as handle:
        try:
            data = os.pread(handle, count, position)
        except OSError as error:
            raise _failed(path, position, error) from None
        if len(data) < count:  # a read may give a part first
            buffer = bytearray(count)
            buffer[: len(data)] = data
            _fill(handle, path, memoryview(buffer)[len(data) :], position + len(data))
            data = bytes(buffer)
    return data


def announce(files: OpenFiles, path: Path, positions: Sequence[int], count: int) -> None:
    """Say that `count` bytes at each of these positions will be read, where the system listens.

    Read one by one out of a file that is not in the page cache, each would wait for the disk by itself.
    """
    if str(path) in FETCHERS or not hasattr(os, "posix_fadvise"):
        return
    with files.borrow(path) as handle, contextlib.suppress(OSError):
        for position in positions:
            os.posix_fadvise(handle, position, count, os.POSIX_FADV_WILLNEED)


def read_blocks(
    files: OpenFiles, path: Path, position: int, count: int, checksum: Checksum | None = None
) -> Iterator[memoryview]:
    """The same in blocks of at most `BLOCK_BYTES`, each valid until the next is asked for."""
    if count <= 0:
        return
    fetch = FETCHERS.get(str(path)) if FETCHERS else None
    if fetch is not None:
        yield from _fetched_blocks(fetch, path, position, count, checksum)
        return
    block = _take_block(count)
    whole, handle = memoryview(block), files.take(path)
    try:
        while count:
            size = min(count, BLOCK_BYTES)
            view = whole[:size]
            _fill(handle, path, view, position)
            if checksum is not None:
                checksum.saw(position, view)
            yield view
            position += size
            count -= size
    finally:
        files.give_back(path)
        if isinstance(block, mmap.mmap) and len(_SPARE) < _MOST_SPARE:
            _SPARE.append(block)


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


def _take_block(count: int) -> mmap.mmap | bytearray:
    """Memory for `count` bytes, or for as many as one block has."""
    if count <= _SMALL_BYTES:
        return bytearray(count)
    try:
        return _SPARE.pop()
    except IndexError:
        return _fresh_block()


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
    size, done = len(view), 0
    while done < size:
        try:
            got = os.preadv(handle, [view[done:] if done else view], position + done)
        except OSError as error:
            raise _failed(path, position + done, error) from None
        if not got:
            raise UnreadableError(
                f"{path}: ends at byte {position + done}, where {size - done} more bytes should follow",
                hint="The file was cut short, perhaps while it was written or copied.",
            )
        done += got


def _failed(path: Path, position: int, error: OSError) -> UnreadableError:
    return UnreadableError(
        f"{path}: reading at byte {position} failed: {error.strerror}",
        hint="The file system reports an error; copy the file elsewhere and retry.",
    )
