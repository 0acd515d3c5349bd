"""Getting written bytes onto the disk while further ones are read, so that little is left to wait for.

A plain `fsync` at the end of a file makes the disk begin when the processor has finished. Here the kernel is
told to start writing back after every few megabytes (`sync_file_range`, Linux), and finished files are
flushed by a thread of their own; `settle` waits for them and raises what went wrong.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass

from checkpoint_convert.errors import CheckpointError
from checkpoint_convert.writers.kernel_calls import start_writing

START_BYTES = 8 << 20
"""So many bytes are written to a file between two calls that start its writing back."""

MOST_WAITING = 64
"""Files that wait for the disk; with more, writers wait too, or a slow disk would use up all handles."""


@dataclass(frozen=True, slots=True)
class _Task:
    """A file to flush: for the last time, with what follows, or only to be begun with."""

    descriptor: int
    is_last: bool
    then: Callable[[], None] | None = None


class Flusher:
    """Flushes files behind the writers' backs. Thread-safe.

    Args:
        durable: False leaves the flushing to the system; files are only closed.
    """

    def __init__(self, *, durable: bool = True) -> None:
        self.durable = durable
        self._queue: queue.Queue[_Task | None] = queue.Queue(MOST_WAITING)
        self._pending: dict[int, int] = {}
        self._thread: threading.Thread | None = None
        self._error: OSError | CheckpointError | None = None
        self._abandoned = False
        self._lock = threading.Lock()

    def wrote(self, descriptor: int, size_bytes: int) -> None:
        """So many more bytes were written to an open file."""
        pending = self._pending.get(descriptor, 0) + size_bytes
        if self.durable and pending >= START_BYTES and start_writing() is not None:
            pending = 0
            self._hand_over(_Task(descriptor, False))
        self._pending[descriptor] = pending  # threads may overtake each other here: a hint counts, not a sum

    def close(self, descriptor: int, then: Callable[[], None] | None = None) -> None:
        """A file is complete: flush it, soon, and close it.

        Args:
            then: what follows, in the flusher's thread.
        """
        self._pending.pop(descriptor, None)
        self._hand_over(_Task(descriptor, True, then))

    def settle(self) -> None:
        """Wait until every closed file is on the disk.

        Raises:
            OSError: the first that could not be flushed.
            CheckpointError: what followed a file failed.
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
        self.durable, self._abandoned = False, True
        with contextlib.suppress(OSError, CheckpointError):
            self.settle()

    def _hand_over(self, task: _Task) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._loop, name="flush", daemon=True)
                self._thread.start()
        self._queue.put(task)

    def _loop(self) -> None:
        while (task := self._queue.get()) is not None:
            try:
                if task.is_last:
                    self._end(task)
                elif (start := start_writing()) is not None:
                    start(task.descriptor)
            except (OSError, CheckpointError) as error:
                self._error = self._error or error

    def _end(self, task: _Task) -> None:
        try:
            if self.durable:
                os.fsync(task.descriptor)
        finally:
            os.close(task.descriptor)
        if task.then is not None and self._error is None and not self._abandoned:
            task.then()
