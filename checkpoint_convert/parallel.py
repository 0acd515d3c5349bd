"""Work on many tensors by a few threads that stop together. Reading, writing and hashing release the lock."""

from __future__ import annotations

import concurrent.futures
import threading
from collections import deque
from collections.abc import Callable, Sequence

from checkpoint_convert.errors import CheckpointError

LARGE_SHARE = 8
"""A tensor larger than 1/8 of a thread's share goes first, so that none is left alone with it at the end."""


class Stopped(CheckpointError):
    """Another thread failed, or the user interrupted; never shown."""


class Workers:
    """Runs one function over the numbers of a list.

    Args:
        jobs: threads; with 1 the caller's own thread does it all.
    """

    def __init__(self, jobs: int) -> None:
        self.jobs = max(jobs, 1)
        self._stop = threading.Event()

    def check(self) -> None:
        """Raise `Stopped` where the work is to end; called between blocks."""
        if self._stop.is_set():
            raise Stopped("stopped")

    def run(self, work: Callable[[int], None], sizes: Sequence[int]) -> None:
        """Call `work(number)` for every number of `sizes` (bytes of each); the first error is raised.

        Raises:
            KeyboardInterrupt: the user interrupted; every thread has ended by then.
        """
        if self.jobs == 1 or len(sizes) < 2:
            for number in range(len(sizes)):
                work(number)
            return
        left = _Shares(sizes, self.jobs)

        def loop(thread: int) -> None:
            while (number := left.take(thread)) is not None:
                self.check()
                work(number)

        self._gather(loop)

    def _gather(self, loop: Callable[[int], None]) -> None:
        with concurrent.futures.ThreadPoolExecutor(self.jobs, "convert") as pool:
            try:
                futures = [pool.submit(loop, thread) for thread in range(self.jobs)]
                concurrent.futures.wait(futures, return_when=concurrent.futures.FIRST_EXCEPTION)
            finally:
                self._stop.set()
        errors = [error for future in futures if (error := future.exception()) is not None]
        self._stop.clear()
        # An error that made the others stop is the one to show.
        for error in sorted(errors, key=lambda error: isinstance(error, Stopped)):
            raise error


class _Shares:
    """What is left to do: the large tensors, and for each thread a run of the others. Thread-safe.

    Threads that write into one file wait for each other (a file system lets one in at a time), so each begins
    at a place of its own; who is ready takes over from the end of the longest run that is left.
    """

    def __init__(self, sizes: Sequence[int], jobs: int) -> None:
        limit = sum(sizes) // (jobs * LARGE_SHARE)
        large = [number for number, size in enumerate(sizes) if size > limit]
        self._large = deque(sorted(large, key=lambda number: -sizes[number]))
        self._runs: list[deque[int]] = [deque() for _ in range(jobs)]
        others = sum(size for size in sizes if size <= limit)
        before = 0
        for number, size in enumerate(sizes):
            if size <= limit:
                self._runs[min(before * jobs // max(others, 1), jobs - 1)].append(number)
                before += size
        self._lock = threading.Lock()

    def take(self, thread: int) -> int | None:
        """The number of the next tensor; None where nothing is left."""
        with self._lock:
            if self._large:
                return self._large.popleft()
            if self._runs[thread]:
                return self._runs[thread].popleft()
            longest = max(self._runs, key=len)
            return longest.pop() if longest else None
