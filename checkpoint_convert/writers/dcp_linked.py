"""A DCP directory that shares the tensor files of another one: only names and values are written anew.

Re-keying and filling hyper-parameters needs no byte of a tensor, so it takes a moment whatever the size. The
files are cloned where the file system can (btrfs, XFS, ...), and hard-linked elsewhere. A hard link is the
same file: who writes into the source afterwards writes into the copy.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

from checkpoint_convert.errors import UnsupportedError
from checkpoint_convert.items import Items, TensorItem
from checkpoint_convert.model import TensorSource
from checkpoint_convert.readers.dcp_chunk import ChunkTensor
from checkpoint_convert.tensor_sources import BoxTensor, ConcatTensor
from checkpoint_convert.values import KeyPath, dotted
from checkpoint_convert.write_options import WriteOptions
from checkpoint_convert.writers.dcp import METADATA_NAME, DcpLayout
from checkpoint_convert.writers.dcp_metadata import (
    Stored,
    StoredChunk,
    StoredTensor,
    StoredValue,
    write_metadata,
)
from checkpoint_convert.writers.layout import PlannedFile, Span
from checkpoint_convert.writers.output import Output

_FICLONE = 0x40049409
"""linux/fs.h: make one file share another's blocks, copied on write."""

_ADDED = "added"
"""Files of our own begin so; torch's begin with two underscores."""


class LinkedDcpLayout:
    """Where everything of `items` goes when tensors stay in the files they are in; see `Layout`.

    Raises:
        UnsupportedError: a tensor has to be written, because it is not a whole chunk of a DCP file.
    """

    wants_crc = True

    def __init__(self, items: Items, options: WriteOptions) -> None:
        self._items = items
        self._linked: dict[int, list[tuple[tuple[int, ...], ChunkTensor]]] = {}
        fresh: list[TensorItem] = []
        self._fresh_number: dict[int, int] = {}
        for number, item in enumerate(items.tensors):
            pieces = chunks_of(item.source) if item.dtype is item.source.dtype else None
            if pieces is not None:
                self._linked[number] = pieces
            elif item.path[0] != items.model_key:
                self._fresh_number[number] = len(fresh)
                fresh.append(item)
            else:
                raise UnsupportedError(
                    f"--link: {dotted(item.path)} does not lie in the source as a DCP directory has it",
                    hint="leave --link out; the bytes are then copied",
                )
        # `fresh` holds filled and rebuilt optimizer state and extras: small, and written like any other.
        self._names = _names({piece.item.path for pieces in self._linked.values() for _, piece in pieces})
        prefix = _free_prefix(self._names.values())
        self._added = DcpLayout(replace(items, tensors=tuple(fresh), shared=()), options, prefix=prefix)

    @property
    def files(self) -> Sequence[PlannedFile]:
        """The files that are written; the linked ones take no space."""
        return self._added.files

    @property
    def tensors(self) -> Sequence[TensorItem]:
        """All tensors of the output."""
        return self._items.tensors

    @property
    def chunk_count(self) -> int:
        """Chunks of all tensors, linked and written."""
        return sum(map(len, self._linked.values())) + self._added.chunk_count

    @property
    def closing_bytes(self) -> int:
        """About the size of `.metadata`."""
        return self._added.closing_bytes + 400 * self.chunk_count

    def begin(self, out: Output) -> None:
        """Link the files, and write the plain values."""
        for path, name in self._names.items():
            _share(path, out.directory / name)
        self._added.begin(out)

    def spans(self, number: int) -> Iterator[Span]:
        """The places of a tensor that is written; none for a linked one."""
        fresh = self._fresh_number.get(number)
        return iter(()) if fresh is None else self._added.spans(fresh)

    def is_linked(self, number: int) -> bool:
        """Whether a tensor's bytes stay where they are."""
        return number in self._linked

    def close_span(self, out: Output, number: int, span: Span, crc: int) -> None:
        """See `Layout`."""
        self._added.close_span(out, self._fresh_number[number], span, crc)

    def note_done(self, out: Output, number: int, crcs: Sequence[int]) -> None:
        """See `Layout`."""
        if number in self._fresh_number:
            self._added.note_done(out, self._fresh_number[number], crcs)

    def finish(self, out: Output) -> None:
        """Write `.metadata`."""
        with out.stream(METADATA_NAME) as sink:
            write_metadata(sink, self._stored)

    def _stored(self) -> Iterator[Stored]:
        added = {entry.path: entry for entry in self._added.stored()}
        shared: dict[KeyPath, list[KeyPath]] = {}
        for alias in self._items.shared:
            shared.setdefault(alias.of, []).append(alias.path)
        for number, item in enumerate(self._items.tensors):
            entry = added.get(item.path)
            if not isinstance(entry, StoredTensor):
                entry = StoredTensor(item.path, item.dtype, item.source.shape, self._chunks(number))
            chunks = list(entry.chunks)
            for path in (item.path, *shared.get(item.path, ())):
                yield StoredTensor(path, entry.dtype, entry.shape, chunks)
        yield from (entry for entry in added.values() if isinstance(entry, StoredValue))

    def _chunks(self, number: int) -> Iterator[StoredChunk]:
        for offsets, piece in self._linked[number]:
            place = piece.item
            name = self._names[place.path]
            yield StoredChunk(offsets, piece.shape, name, place.start, place.size_bytes)


def chunks_of(source: TensorSource) -> list[tuple[tuple[int, ...], ChunkTensor]] | None:
    """The stored chunks that make up a tensor, by offset; None where it is made of anything else."""
    pieces: list[tuple[tuple[int, ...], TensorSource]]
    if isinstance(source, ChunkTensor):
        pieces = [((0,) * len(source.shape), source)]
    elif isinstance(source, BoxTensor):
        pieces = [(box.offsets, box.piece) for box in source.boxes]
    elif isinstance(source, ConcatTensor) and source.shape:
        rows = (0, *accumulate(part.shape[0] for part in source.parts))
        rest = (0,) * (len(source.shape) - 1)
        pieces = [((row, *rest), part) for row, part in zip(rows, source.parts, strict=False)]
        if any(part.shape[1:] != source.shape[1:] for part in source.parts):
            return None
    elif isinstance(source, ConcatTensor):
        pieces = [((), part) for part in source.parts]
    else:
        return None
    found = [(offsets, piece) for offsets, piece in pieces if isinstance(piece, ChunkTensor)]
    return found if found and len(found) == len(pieces) else None


def _names(paths: set[Path]) -> dict[Path, str]:
    """A name in the output for each source file; files of two directories may have the same."""
    names: dict[Path, str] = {}
    for path in sorted(paths):
        name = path.name if path.name not in names.values() else f"{path.parent.name}_{path.name}"
        if name in names.values():
            raise UnsupportedError(f"--link: two source files are named {path.name}", hint="leave --link out")
        names[path] = name
    return names


def _free_prefix(names: Collection[str]) -> str:
    """What no linked file begins with: the source may itself have files that an earlier `--link` added."""
    prefix, number = f"{_ADDED}_", 2
    while any(name.startswith(prefix) for name in names):
        prefix, number = f"{_ADDED}{number}_", number + 1
    return prefix


def _share(source: Path, target: Path) -> None:
    try:
        with source.open("rb") as old, target.open("xb") as new:
            fcntl.ioctl(new.fileno(), _FICLONE, old.fileno())
            return
    except OSError:
        target.unlink(missing_ok=True)
    try:
        os.link(source.resolve(), target)
    except OSError as error:
        raise UnsupportedError(
            f"--link: {source} cannot be linked to {target.parent} ({error.strerror})",
            hint="leave --link out; the bytes are then copied",
        ) from error
