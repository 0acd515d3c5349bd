"""Output files: written at positions, by any thread, flushed to the disk before anyone relies on them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from checkpoint_convert.writers.flushing import Flusher
from checkpoint_convert.writers.kernel_calls import reserve

_FLAGS = os.O_WRONLY | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)


class Output:
    """The files of one output directory.

    Args:
        directory: where they are; exists.
        names: file names by number.
        sizes: their bytes, as far as they are known; room is made for them before the first is written.
        durable: flush to the disk; False leaves that to the system.
        anew: no file may be there already (it may be a hard link to one of the source's). False where an
            earlier run or another rank made some.
        then: called with each file that is complete, from a thread of its own.
    """

    def __init__(
        self,
        directory: Path,
        names: list[str],
        *,
        durable: bool = True,
        anew: bool = True,
        then: Callable[[Path], None] | None = None,
        sizes: Sequence[int] = (),
    ) -> None:
        self._then = then
        self._sizes = sizes
        self._flags = _FLAGS | (os.O_EXCL if anew else 0)
        self.directory = directory
        self._names = names
        self._flusher = Flusher(durable=durable)
        self._descriptors: dict[int, int] = {}
        self._lock = threading.Lock()

    def write(self, file: int, offset: int, data: bytes | memoryview) -> None:
        """Write all of `data` at `offset` bytes from the file's start.

        Raises:
            OSError: as the system has it (no space, file too large, ...).
        """
        descriptor = self._descriptors.get(file)
        if descriptor is None:
            descriptor = self._open(file)
        written = os.pwrite(descriptor, data, offset)
        if written != len(data):  # a full disk may take a part first
            rest = memoryview(data)[written:]
            while rest:
                offset += written
                written = os.pwrite(descriptor, rest, offset)
                rest = rest[written:]
        self._flusher.wrote(descriptor, len(data))

    def _open(self, file: int) -> int:
        with self._lock:
            if file not in self._descriptors:
                path = self.directory / self._names[file]
                path.parent.mkdir(parents=True, exist_ok=True)
                descriptor = self._descriptors[file] = os.open(path, self._flags, 0o666)
                # What an earlier run finished, or sent away and left without its bytes, needs no room.
                if file < len(self._sizes) and os.fstat(descriptor).st_size < self._sizes[file]:
                    reserve(descriptor, self._sizes[file])
            return self._descriptors[file]

    def close(self, file: int, size_bytes: int) -> None:
        """The file is complete: give it its size. It is flushed and closed by the time `settle` returns."""
        descriptor = self._descriptors.get(file)
        if descriptor is None:
            descriptor = self._open(file)
        os.ftruncate(descriptor, size_bytes)
        with self._lock:
            del self._descriptors[file]
        then = self._then
        path = self.directory / self._names[file]
        self._flusher.close(descriptor, None if then is None else lambda: then(path))

    def close_rest(self, sizes: Sequence[int]) -> None:
        """Close what is still open: files that other ranks write to as well. Sizes by file number."""
        for file in sorted(self._descriptors):
            self.close(file, sizes[file])

    @property
    def is_anew(self) -> bool:
        """Whether no file may be there already."""
        return bool(self._flags & os.O_EXCL)

    @property
    def is_durable(self) -> bool:
        """Whether files are flushed to the disk."""
        return self._flusher.durable

    def settle(self) -> None:
        """Wait until all files that were closed are on the disk.

        Raises:
            OSError: one could not be flushed.
        """
        self._flusher.settle()

    def abandon(self) -> None:
        """Close everything as it is."""
        self._flusher.abandon()
        with self._lock:
            while self._descriptors:
                os.close(self._descriptors.popitem()[1])

    @contextmanager
    def stream(self, name: str) -> Iterator[Callable[[bytes], object]]:
        """Write a further file from start to end; it is on the disk by the time `settle` returns."""
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb" if self._flags & os.O_EXCL else "wb", buffering=1 << 16) as file:
            yield file.write
            file.flush()
            self._flusher.close(os.dup(file.fileno()))

    def within(self, folder: str, first: int) -> Output:
        """The same output for a part of it: its file 0 is our file `first`, its names are in `folder`."""
        return _Within(self, folder, first)


class _Within(Output):
    """A part of another output, which opens, counts and closes the files."""

    def __init__(self, whole: Output, folder: str, first: int) -> None:
        super().__init__(whole.directory / folder, [], durable=whole.is_durable, anew=whole.is_anew)
        self._whole = whole
        self._flusher = whole._flusher
        self._first = first

    def write(self, file: int, offset: int, data: bytes | memoryview) -> None:
        self._whole.write(self._first + file, offset, data)

    def close(self, file: int, size_bytes: int) -> None:
        self._whole.close(self._first + file, size_bytes)
