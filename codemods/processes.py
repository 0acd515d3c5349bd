"""Work shared out among processes that are copies of this one (`os.fork`), where the system has them.

A copy has everything that this process has read, without its being sent; only results come back, as pickles.
The copies end with this process, however it ends.
"""

from __future__ import annotations

import os
import signal
import threading
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import BinaryIO, Generic, NoReturn, TypeVar

from codemods.errors import CodemodError

Item = TypeVar("Item")
Result = TypeVar("Result")

_SHARES = 256
"""Items are taken in at most this many portions: few enough for one pipe, enough for an even end."""


class WorkerDied(CodemodError):
    """A process ended before its work did."""

    exit_code = 3
    """`JOB_FAILED` of `fsdp_migrate.exit_codes`, which this package does not import."""


def processors() -> int:
    """How many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def mapped(work: Callable[[Item], Result], items: Sequence[Item], jobs: int) -> list[Result]:
    """`work` of every item, in their order; this process and `jobs - 1` copies take items as they get free.

    What `work` changes in memory is lost, where a copy did it. One process does it all where there is
    nothing to share, or no `os.fork`.

    Raises:
        WorkerDied: a copy was killed.
        Exception: whatever `work` raised; of several, that of the first item.
    """
    jobs = min(jobs, len(items))
    if jobs < 2 or not hasattr(os, "fork"):
        return [work(item) for item in items]
    portion = -(-len(items) // max(_SHARES, jobs))
    starts = range(0, len(items), portion)
    with _Crew(lambda start: [work(item) for item in items[start : start + portion]]) as crew:
        parts = crew.run(list(starts), jobs)
    return [result for start in starts for result in parts[start]]


@dataclass(slots=True)
class _Failure:
    """What went wrong with the portion that starts at an item."""

    start: int
    error: BaseException


@dataclass(slots=True)
class _Copy:
    """One copy of this process, and the pipe its results come from."""

    pid: int
    results: BinaryIO
    ended: bool = False


@dataclass(slots=True)
class _Crew(Generic[Result]):
    """This process and its copies; leaving the `with` block ends the copies."""

    work: Callable[[int], list[Result]]
    copies: list[_Copy] = field(default_factory=list)

    def __enter__(self) -> _Crew[Result]:
        return self

    def __exit__(self, *error: object) -> None:
        for copy in self.copies:
            copy.results.close()
            if not copy.ended:
                with suppress(ProcessLookupError):
                    os.kill(copy.pid, signal.SIGKILL)
                os.waitpid(copy.pid, 0)

    def run(self, starts: list[int], jobs: int) -> dict[int, list[Result]]:
        """Start of each portion -> its results."""
        waiting, given = os.pipe()
        alive, held = os.pipe()  # what is held open here closes with this process
        try:
            os.write(given, b"".join(start.to_bytes(4, "little") for start in starts))
            for _ in range(jobs - 1):
                with suppress(OSError):  # where no more processes are allowed, those that run do it all
                    self._start(waiting, given, alive, held)
            os.close(given)
            given = -1
            done: dict[int, list[Result]] = {}
            failures = self._take(waiting, done)
            for copy in self.copies:
                failures += self._gather(copy, done)
        finally:
            for end in (waiting, given, alive, held):
                if end >= 0:
                    os.close(end)
        if failures:
            raise min(failures, key=lambda failure: failure.start).error
        return done

    def _start(self, waiting: int, given: int, alive: int, held: int) -> None:
        reading, writing = os.pipe()
        results = os.fdopen(reading, "rb")
        try:
            with warnings.catch_warnings():
                # A thread may be drawing a spinner; the copy has no part in it, and shares no lock with it.
                warnings.simplefilter("ignore", DeprecationWarning)
                pid = os.fork()
            if pid == 0:
                self._be_copy(waiting, alive, writing, closed=(given, held, reading))
            self.copies.append(_Copy(pid, results))
        except OSError:
            results.close()
            raise
        finally:
            os.close(writing)

    def _be_copy(self, waiting: int, alive: int, writing: int, *, closed: Sequence[int]) -> NoReturn:
        """Never leaves: what stands above this call belongs to the other process."""
        status = 1
        try:
            for end in closed:
                os.close(end)
            # Ctrl-C reaches every process of the terminal; what it says is for the first one to say.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            threading.Thread(target=_end_with, args=(alive,), daemon=True).start()
            done: dict[int, list[Result]] = {}
            failures = self._take(waiting, done)
            with os.fdopen(writing, "wb") as stream:
                stream.write(_pickled(done, failures))
            status = 0
        finally:
            os._exit(status)

    def _take(self, waiting: int, done: dict[int, list[Result]]) -> list[_Failure]:
        """Do portions until none is left, or one fails: then nobody begins another."""
        while number := os.read(waiting, 4):
            start = int.from_bytes(number, "little")
            try:
                done[start] = self.work(start)
            except Exception as error:
                while os.read(waiting, 1 << 16):
                    pass
                return [_Failure(start, error)]
        return []

    def _gather(self, copy: _Copy, done: dict[int, list[Result]]) -> list[_Failure]:
        """What a copy did.

        Raises:
            WorkerDied: it did not come to its end.
        """
        data = copy.results.read()
        _, status = os.waitpid(copy.pid, 0)
        copy.ended = True
        code = os.waitstatus_to_exitcode(status)
        if code != 0:
            how = f"was killed by signal {-code}" if code < 0 else f"ended with status {code}"
            raise WorkerDied(
                f"a process that did a part of the work {how}; nothing was written",
                hint="Where memory is short, run it with `--jobs 1`.",
            )
        import pickle  # only where there are copies

        results, failures = pickle.loads(data)
        done.update(results)
        return [_received(*failure) for failure in failures]


def _end_with(alive: int) -> None:
    """End this process as soon as the one it is a copy of has ended."""
    os.read(alive, 1)
    os._exit(1)


def _pickled(done: object, failures: list[_Failure]) -> bytes:
    """Results and failures for the way through a pipe; what cannot go that way becomes an error that can."""
    import pickle

    told = [(f.start, f.error, "".join(traceback.format_exception(f.error))) for f in failures]
    try:
        data = pickle.dumps((done, told), protocol=pickle.HIGHEST_PROTOCOL)
        if told:
            pickle.loads(data)  # an error can be such that it cannot be made again
    except Exception as error:
        start, why, trace = told[0] if told else (0, error, "")
        said = "".join(traceback.format_exception_only(why)).strip()
        data = pickle.dumps(({}, [(start, RuntimeError(said), trace)]))
    return data


def _received(start: int, error: BaseException, trace: str) -> _Failure:
    """A failure of a copy; where it was raised stands in its cause, as traces do not come through a pipe."""
    error.__cause__ = RuntimeError(f"in another process:\n{trace}")
    return _Failure(start, error)
