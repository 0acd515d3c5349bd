"""The ranks of one conversion: processes of `torchrun`, on any number of nodes, that share a destination.

They need no process group and no torch: they meet through small files in the unfinished output. Rank 0
invites into a folder of this run, the others answer with a word of their own, and its roster names those that
are in; so nobody takes the notes of an earlier, lost run for those of this one, even where a rank of it still
lives. Each rank writes a number that grows; who waits for a rank whose number stands still gives up.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from checkpoint_convert.errors import DestinationError
from checkpoint_convert.journal import WORK_NAME

LOST_S = 60.0
"""Seconds without a sign of life after which a rank counts as lost."""

COME_S = 300.0
"""Seconds that ranks have to arrive."""

_PREFIX = "ranks-"
_BEAT_S = 2.0
_POLL_S = 0.02


class Ranks:
    """This process among the others.

    Args:
        rank, size: as `torchrun` numbers them; (0, 1) for a process of its own, which waits for nobody.
    """

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank, self.size = rank, size
        self._folder: Path | None = None
        self._word = os.urandom(8).hex()
        self._over = threading.Event()
        self._beating: threading.Thread | None = None

    @classmethod
    def of_environment(cls, environment: Mapping[str, str] = os.environ) -> Ranks:
        """What `torchrun` says."""
        try:
            rank, size = int(environment["RANK"]), int(environment["WORLD_SIZE"])
        except (KeyError, ValueError):
            return cls()
        return cls(rank, size) if 0 <= rank < size else cls()

    @property
    def is_first(self) -> bool:
        """Whether this is rank 0, which does what only one may do."""
        return self.rank == 0

    @property
    def is_alone(self) -> bool:
        """Whether there are no others."""
        return self.size == 1

    def invite(self, directory: Path, outline: str) -> None:
        """Rank 0: the unfinished output is ready; wait until every rank is there.

        Args:
            outline: what of the plan all ranks must agree on.

        Raises:
            DestinationError: a rank has not come, or plans another output.
        """
        if self.is_alone:
            return
        work = directory / WORK_NAME
        for earlier in work.glob(f"{_PREFIX}*"):
            shutil.rmtree(earlier, ignore_errors=True)
        folder = work / f"{_PREFIX}{self._word}"
        folder.mkdir(parents=True)
        self._start(folder)
        others = {rank: folder / f"hello-{rank}" for rank in range(1, self.size)}
        self._wait(lambda: all(map(_text, others.values())), "not all ranks have come", COME_S)
        words = [self._word]
        for rank, path in others.items():
            word, planned = _text(path).split()
            if planned != outline:
                raise DestinationError(
                    f"rank {rank} plans another output than rank 0",
                    hint="start all ranks with the same command, where each sees the same source",
                )
            words.append(word)
        _put(folder / "roster", "\n".join(words))

    def join(self, directory: Path, outline: str) -> None:
        """Another rank: wait for rank 0 and its roster.

        Raises:
            DestinationError: rank 0 has not come, or has failed.
        """
        joined: list[Path] = []

        def is_in() -> bool:
            for folder in (directory / WORK_NAME).glob(f"{_PREFIX}*"):
                hello, failed = folder / f"hello-{self.rank}", _text(folder / "failed")
                if not failed and not _text(hello):
                    _put(hello, f"{self._word} {outline}")
                if self._word in _text(folder / "roster").split():
                    joined.append(folder)
                elif failed and self._word in _text(hello).split():
                    raise DestinationError(failed, hint=_HINT)
            return bool(joined)

        self._wait(is_in, "rank 0 has not come", COME_S)
        self._start(joined[0])

    def meet(self, name: str) -> None:
        """Go on when all ranks have come to the same point.

        Raises:
            DestinationError: a rank failed, or is lost.
        """
        if self._folder is None:
            return
        _put(self._folder / f"{name}-{self.rank}", self._word)
        if self.is_first:
            self._wait_for_others(self._folder, name)
            _put(self._folder / name, self._word)
        else:
            self._wait((self._folder / name).exists, "rank 0 is lost", LOST_S, watched=0)

    def hand_in(self, name: str) -> None:
        """The same, but only rank 0 waits: what follows is its own."""
        if self._folder is None:
            return
        if self.is_first:
            self._wait_for_others(self._folder, name)
            self.leave()
        else:
            self.leave()  # rank 0 removes the folder as soon as it sees this
            _put(self._folder / f"{name}-{self.rank}", self._word)

    def _wait_for_others(self, folder: Path, name: str) -> None:
        for rank in range(1, self.size):
            path = folder / f"{name}-{rank}"
            self._wait(path.exists, f"rank {rank} is lost", LOST_S, watched=rank)

    def fail(self, reason: str) -> None:
        """Let the others know that it is over; the first reason counts, the rest are its echo."""
        if self._folder is not None:
            with contextlib.suppress(OSError), (self._folder / "failed").open("x", encoding="utf-8") as file:
                file.write(f"rank {self.rank}: {reason}")

    def leave(self) -> None:
        """No more signs of life."""
        self._over.set()
        if self._beating is not None:
            self._beating.join(_BEAT_S)

    def _start(self, folder: Path) -> None:
        self._folder = folder
        self._beating = threading.Thread(
            target=self._beat, args=(folder / f"alive-{self.rank}",), daemon=True
        )
        self._beating.start()

    def _beat(self, path: Path) -> None:
        count = 0
        while not self._over.wait(_BEAT_S if count else 0):
            count += 1
            with contextlib.suppress(OSError):  # the next may be seen
                _put(path, str(count))

    def _wait(
        self, is_there: Callable[[], bool], lost: str, patience_s: float, watched: int | None = None
    ) -> None:
        """Wait for something; `watched` is the rank that has to show it."""
        seen, since = "", time.monotonic()
        while not is_there():
            if self._folder is not None:
                if failed := _text(self._folder / "failed"):
                    raise DestinationError(failed, hint=_HINT)
                sign = _text(self._folder / f"alive-{watched}") if watched is not None else ""
                if sign != seen:
                    seen, since = sign, time.monotonic()
            if time.monotonic() - since > patience_s:
                raise DestinationError(f"{lost} after {patience_s:.0f} s", hint=_HINT)
            time.sleep(_POLL_S)


_HINT = (
    "run the same command again: what is finished is kept. RANK and WORLD_SIZE are set, so that the ranks of "
    "torchrun were expected; unset them for a conversion by one process"
)


def _put(path: Path, text: str) -> None:
    """Write a small file that others see whole or not at all; a folder that is gone is no error."""
    fresh = path.with_name(f".{path.name}-{os.urandom(4).hex()}")
    try:
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(path)
    except FileNotFoundError:
        return


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""
