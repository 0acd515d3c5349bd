"""Getting written bytes onto the disk while further ones are read, so that little is left to wait for.

A plain `fsync` at the end of a file makes the disk begin when the processor has finished. Here the kernel is
told to start writing back after every few megabytes (`sync_file_range`, Linux), and finished files are
flushed by a thread of their own; `settle` waits for them and raises what went wrong.
"""

from __future__ import annotations

import contextlib
import functools
import os
import queue
import sys
import threading
from collections.abc import Callable

START_BYTES = 8 << 20
"""So many bytes are written to a file between two calls that start its writing back."""

MOST_WAITING = 64
"""Files that wait for the disk; with more, writers wait too, or a slow disk would use up all handles."""

_WRITE = 2
"""linux/fs.h: SYNC_FILE_RANGE_WRITE, start writing what is dirty, wait for nothing."""


class Flusher:
    """Flushes files behind the writers' backs. Thread-safe.

    Args:
        durable: False leaves the flushing to the system; files are only closed.
    """

    def __init__(self, *, durable: bool = True) -> None:
        self.durable = durable
        self._queue: queue.Queue[tuple[int, bool] | None] = queue.Queue(MOST_WAITING)
        self._pending: dict[int, int] = {}
        self._thread: threading.Thread | None = None
        self._error: OSError | None = None
        self._lock = threading.Lock()

    def wrote(self, descriptor: int, size_bytes: int) -> None:
        """So many more bytes were written to an open file."""
        pending = self._pending.get(descriptor, 0) + size_bytes
        if self.durable and pending >= START_BYTES and start_writing() is not None:
            pending = 0
            self._hand_over(descriptor, is_last=False)
        self._pending[descriptor] = pending  # threads may overtake each other here: a hint counts, not a sum

    def close(self, descriptor: int) -> None:
        """A file is complete: flush it, soon, and close it."""
        self._pending.pop(descriptor, None)
        self._hand_over(descriptor, is_last=True)

    def settle(self) -> None:
        """Wait until every closed file is on the disk.

        Raises:
            OSError: the first that could not be flushed.
        """
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            self._queue.put(None)
            thread.join()
        if self._error is not None:
            raise self._error

    def abandon(self) -> None:
        """Close what was handed over, whatever state it is in."""
        self.durable = False
        with contextlib.suppress(OSError):
            self.settle()

    def _hand_over(self, descriptor: int, *, is_last: bool) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._loop, name="flush", daemon=True)
                self._thread.start()
        self._queue.put((descriptor, is_last))

    def _loop(self) -> None:
        while (task := self._queue.get()) is not None:
            descriptor, is_last = task
            try:
                if is_last:
                    self._end(descriptor)
                elif (start := start_writing()) is not None:
                    start(descriptor)
            except OSError as error:
                self._error = self._error or error

    def _end(self, descriptor: int) -> None:
        try:
            if self.durable:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)


@functools.cache
def start_writing() -> Callable[[int], object] | None:
    """Linux's `sync_file_range` of a whole file, given its descriptor; None where there is no such call."""
    if not sys.platform.startswith("linux"):
        return None
    import ctypes

    try:
        call = ctypes.CDLL(None).sync_file_range
    except (OSError, AttributeError):
        return None
    call.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return lambda descriptor: call(descriptor, 0, 0, _WRITE)
