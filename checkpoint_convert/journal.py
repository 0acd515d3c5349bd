"""What of a conversion stands already: one line per finished tensor, so that a run after a lost one goes on.

Journals lie in the unfinished output. They count only for the same conversion, which `fingerprint` tells: the
same source files, unchanged, to be laid out in the same way. What they say is read back before it is trusted.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from checkpoint_convert import digest
from checkpoint_convert.file_bytes import identity
from checkpoint_convert.model import TensorSource
from checkpoint_convert.readers.dcp_chunk import ChunkTensor
from checkpoint_convert.stored_tensor import StoredTensor
from checkpoint_convert.tensor_sources import BoxTensor, ConcatTensor, SliceTensor, StridedTensor
from checkpoint_convert.transfer import Digests, Note
from checkpoint_convert.writers.layout import Layout

WORK_NAME = ".work"
"""The folder in an unfinished output that holds journals, and the notes ranks leave for each other."""

_PLAN_NAME = "plan"
_PREFIX = "journal-"
_KEPT_NAME = f"{_PREFIX}of-earlier-runs"
_FLUSH_BYTES = 64 << 20
"""A line is kept back until so many bytes were written after the last: what a lost run writes again."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A tensor that stands in the output.

    Attributes:
        crcs: CRC-32 of its spans, in order.
    """

    digests: Digests
    crcs: tuple[int, ...]


class Journal:
    """The lines of this process. Thread-safe.

    Args:
        directory: of the unfinished output.
    """

    def __init__(self, directory: Path) -> None:
        work = directory / WORK_NAME
        work.mkdir(exist_ok=True)
        self._file = (work / f"{_PREFIX}{os.urandom(8).hex()}").open("x", encoding="ascii")
        self._pending = 0
        self._lock = threading.Lock()

    def note(self, number: int, finished: Finished, size_bytes: int) -> None:
        """A tensor was written."""
        with self._lock:
            self._file.write(_row(number, finished))
            self._pending += size_bytes
            if self._pending >= _FLUSH_BYTES:
                self._pending = 0
                self._file.flush()

    def close(self) -> None:
        """Write what is left."""
        self._file.close()


@contextlib.contextmanager
def keeping(directory: Path, layout: Layout, *, enabled: bool) -> Iterator[Note | None]:
    """Something that keeps a journal of what `transfer` writes; None where none is wanted."""
    if not enabled:
        yield None
        return
    kept_here = Journal(directory)
    try:
        yield lambda number, digests, crcs: kept_here.note(
            number, Finished(digests, crcs), layout.tensors[number].size_bytes
        )
    finally:
        kept_here.close()


def outline(layout: Layout) -> str:
    """What makes two outputs the same but for their bytes: files, tensors, and what goes where."""
    running = digest.new()
    for file in layout.files:
        running.update(f"{file.name}:{file.size_bytes}\n".encode())
    for number, item in enumerate(layout.tensors):
        running.update(f"{item.path}:{item.dtype.torch_name}".encode())
        for span in layout.spans(number):
            running.update(f"{span.file}:{span.offset}:{span.start}:{span.stop};".encode())
    return running.hexdigest()


def fingerprint(layout: Layout, outlined: str, source: str) -> str:
    """What makes two conversions the same.

    Args:
        outlined: the layout's `outline`.
        source: what identifies the source's files and their state.
    """
    running = digest.new()
    running.update(f"{outlined}\n{source}".encode())
    for item in layout.tensors:
        running.update(f"\n{_where(item.source)}".encode())
    return running.hexdigest()


def _where(source: TensorSource) -> str:
    """Where a tensor's elements lie, as text."""
    head = f"{type(source).__name__}{source.dtype.torch_name}{source.shape}"
    if isinstance(source, StoredTensor):
        storage = source.storage
        return f"{head}{identity(storage.path)}@{storage.position}+{source.offset}{source.stride}"
    if isinstance(source, ChunkTensor):
        return f"{head}{identity(source.item.path)}@{source.item.start}"
    if isinstance(source, SliceTensor):
        return f"{head}+{source.offset}({_where(source.whole)})"
    if isinstance(source, StridedTensor):
        return f"{head}{source.stride}({_where(source.memory)})"
    if isinstance(source, ConcatTensor):
        return f"{head}({','.join(map(_where, source.parts))})"
    if isinstance(source, BoxTensor):
        return f"{head}({','.join(f'{box.offsets}{_where(box.piece)}' for box in source.boxes)})"
    return head


def is_of(directory: Path, wanted: str) -> bool:
    """Whether an unfinished output is of the conversion with that fingerprint."""
    try:
        return (directory / WORK_NAME / _PLAN_NAME).read_text(encoding="ascii") == wanted
    except (OSError, UnicodeDecodeError):
        return False


def begin(directory: Path, wanted: str) -> None:
    """Say whose the unfinished output is."""
    work = directory / WORK_NAME
    work.mkdir(exist_ok=True)
    (work / _PLAN_NAME).write_text(wanted, encoding="ascii")


def forget(directory: Path) -> None:
    """Make the next run start anew."""
    (directory / WORK_NAME / _PLAN_NAME).unlink(missing_ok=True)


def finished(directory: Path, tensors: int) -> dict[int, Finished]:
    """What all journals of an unfinished output say; the torn last line of a lost run is not read."""
    found: dict[int, Finished] = {}
    for path in sorted((directory / WORK_NAME).glob(f"{_PREFIX}*")):
        found.update(_rows(path.read_bytes(), tensors))
    return found


class NewLines:
    """What the journals of an unfinished output say that was not asked for yet; see `parsed`."""

    def __init__(self) -> None:
        self._read: dict[str, int] = {}

    def take(self, directory: Path) -> bytes:
        """The whole lines that came since the last call."""
        found = []
        for path in sorted((directory / WORK_NAME).glob(f"{_PREFIX}*")):
            at = self._read.get(path.name, 0)
            with path.open("rb") as file:
                file.seek(at)
                whole = file.read().rpartition(b"\n")
            found.append(whole[0] + whole[1])
            self._read[path.name] = at + len(found[-1])
        return b"".join(found)


def parsed(data: bytes, tensors: int) -> dict[int, Finished]:
    """The tensors that journals list, by number."""
    return dict(_rows(data, tensors))


def keep(directory: Path, found: Mapping[int, Finished]) -> None:
    """Write down that so much stands, beside what other journals say."""
    work = directory / WORK_NAME
    work.mkdir(exist_ok=True)
    fresh = work / "kept.tmp"
    with fresh.open("w", encoding="ascii") as file:
        for number, one in found.items():
            file.write(_row(number, one))
    fresh.replace(work / _KEPT_NAME)


def compact(directory: Path, tensors: int) -> None:
    """Put what all journals say into one, which every rank then reads: `kept`."""
    keep(directory, finished(directory, tensors))
    work = directory / WORK_NAME
    for path in work.glob(f"{_PREFIX}*"):
        if path.name != _KEPT_NAME:
            path.unlink()


def kept(directory: Path, tensors: int) -> dict[int, Finished]:
    """What earlier runs finished."""
    path = directory / WORK_NAME / _KEPT_NAME
    return dict(_rows(path.read_bytes(), tensors)) if path.exists() else {}


def _row(number: int, one: Finished) -> str:
    row = [number, one.digests.read.hex(), one.digests.written.hex(), *one.crcs]
    return json.dumps(row, separators=(",", ":")) + "\n"


def _rows(data: bytes, tensors: int) -> Iterator[tuple[int, Finished]]:
    for line in data.split(b"\n")[:-1]:
        try:
            number, read, written, *crcs = json.loads(line)
            digests = Digests(bytes.fromhex(read), bytes.fromhex(written))
        except (ValueError, TypeError):
            continue
        if type(number) is int and 0 <= number < tensors:
            yield number, Finished(digests, tuple(crcs))


def shares(numbers: Sequence[int], size_of: Callable[[int], int], ranks: int) -> list[Sequence[int]]:
    """Cut tensors, in order, into runs of about equal bytes, one per rank.

    Args:
        size_of: bytes of a tensor, by its number.
    """
    if ranks == 1:
        return [numbers]
    cuts: list[list[int]] = [[] for _ in range(ranks)]
    total = sum(map(size_of, numbers)) + len(numbers)
    before = 0
    for number in numbers:
        size = size_of(number) + 1
        cuts[min(int((before + size / 2) * ranks / total), ranks - 1)].append(number)
        before += size
    return [tuple(cut) for cut in cuts]
