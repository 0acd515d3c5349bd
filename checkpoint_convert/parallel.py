"""Work on many tensors by a few threads that stop together. Reading, writing and hashing release the lock."""

from __future__ import annotations

import concurrent.futures
import threading
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
        order = self._order(sizes)
        if self.jobs == 1 or len(order) < 2:
            for number in order:
                work(number)
            return
        numbers = iter(order)
        lock = threading.Lock()

        def loop() -> None:
            while True:
                self.check()
                with lock:
                    number = next(numbers, None)
                if number is None:
                    return
                work(number)

        self._gather(loop)

    def _gather(self, loop: Callable[[], None]) -> None:
        with concurrent.futures.ThreadPoolExecutor(self.jobs, "convert") as pool:
            try:
                futures = [pool.submit(loop) for _ in range(self.jobs)]
                concurrent.futures.wait(futures, return_when=concurrent.futures.FIRST_EXCEPTION)
            finally:
                self._stop.set()
        errors = [error for future in futures if (error := future.exception()) is not None]
        self._stop.clear()
        # An error that made the others stop is the one to show.
        for error in sorted(errors, key=lambda error: isinstance(error, Stopped)):
            raise error

    def _order(self, sizes: Sequence[int]) -> list[int]:
        if self.jobs == 1:
            return list(range(len(sizes)))
        limit = sum(sizes) // (self.jobs * LARGE_SHARE)
        large = [number for number, size in enumerate(sizes) if size > limit]
        large.sort(key=lambda number: -sizes[number])
        return large + [number for number, size in enumerate(sizes) if size <= limit]
