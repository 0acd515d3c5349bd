"""How a tensor is cut for a DCP directory: contiguous blocks of at most so many bytes. Pure arithmetic.

A chunk is a hyper-rectangle that is one run in row-major order: rows of dimension 0 as a rule, and rows of a
later dimension where a single row is larger than a chunk may be. With target ranks the rows are first cut as
`torch.chunk(tensor, ranks)` cuts them, which is what FSDP2's `Shard(0)` does.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from checkpoint_convert.model import numel


@dataclass(frozen=True, slots=True)
class Chunk:
    """A block of a tensor.

    Attributes:
        offsets, sizes: in elements per dimension, as DCP's `ChunkStorageMetadata` has them.
        start, stop: the run of elements, in row-major order.
        rank: the target rank that will read it.
    """

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    start: int
    stop: int
    rank: int = 0


@functools.lru_cache(maxsize=256)  # a model has few shapes, and each is asked for many times per tensor
def cut(shape: tuple[int, ...], itemsize: int, chunk_bytes: int, ranks: int = 1) -> Sequence[Chunk]:
    """The chunks of a tensor, in row-major order; one chunk for an empty or a 0-dim tensor."""
    return tuple(_cut(shape, itemsize, chunk_bytes, ranks))


def _cut(shape: tuple[int, ...], itemsize: int, chunk_bytes: int, ranks: int) -> Iterator[Chunk]:
    if not shape or numel(shape) == 0:
        yield Chunk((0,) * len(shape), shape, 0, numel(shape))
        return
    rows_per_rank = -(-shape[0] // ranks)
    for rank, first in enumerate(range(0, shape[0], rows_per_rank)):
        last = min(first + rows_per_rank, shape[0])
        yield from _cut_rows(shape, itemsize, chunk_bytes, (), first, last, rank)


def _cut_rows(
    shape: tuple[int, ...],
    itemsize: int,
    chunk_bytes: int,
    fixed: tuple[int, ...],
    first: int,
    last: int,
    rank: int,
) -> Iterator[Chunk]:
    """Cut rows `first` to `last` of dimension `len(fixed)`, the ones before it being held at `fixed`."""
    dim = len(fixed)
    inner = shape[dim + 1 :]
    row = numel(inner)
    if row * itemsize > chunk_bytes and inner:
        for index in range(first, last):
            yield from _cut_rows(shape, itemsize, chunk_bytes, (*fixed, index), 0, inner[0], rank)
        return
    base = 0
    for length, index in zip(shape, fixed, strict=False):
        base = base * length + index
    base *= shape[dim]
    rows = max(chunk_bytes // (row * itemsize), 1)
    # Equal chunks rather than full ones and a small rest.
    rows = -(-(last - first) // -(-(last - first) // rows))
    for begin in range(first, last, rows):
        end = min(begin + rows, last)
        yield Chunk(
            (*fixed, begin, *(0,) * len(inner)),
            (*(1,) * dim, end - begin, *inner),
            (base + begin) * row,
            (base + end) * row,
            rank,
        )
