"""What is kept of a tensor that is too large to keep: digests, norm, and projections, whatever its sharding.

All are sums over elements that depend on an element's value and its index in the full tensor alone. So every
rank sums over what it holds, and the sums of the ranks add up to the same result under any sharding: equality
and the size of a difference can be told without gathering anything.

The full tensor is read in rows of 4096 elements. A row's bytes times small random keys give two whole
numbers, which are exact; its elements times random signs give four, one for each stretch of 1024. All are
matrix-vector products over blocks of rows (`probes/products.py`). What they give for all tensors of a
quantity is put together at once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fsdp_migrate.verify.probes.keys import (
    DIGESTS,
    ROW,
    STRETCHES,
    RowTables,
    byte_keys,
    row_tables,
    sign_tables,
    tables_of_spans,
)
from fsdp_migrate.verify.probes.products import RowSums, products
from fsdp_migrate.verify.probes.shards import Slot

PROJECTIONS = 2 * STRETCHES
"""Of even and of odd rows."""

_ENDS = 1 << 10
"""Rows that are made at once."""
_BOX_CHUNK = 1 << 16
_NARROW = (torch.float32, torch.bfloat16, torch.float16)


@dataclass(frozen=True, slots=True)
class Sketch:
    """Sums over the elements one rank holds.

    Args:
        digest: modulo 2**64; equal for equal bits.
        further: the same with other keys. The two together are unequal for tensors of elements of up to four
            bytes that differ in one or two bytes of a row, and of others about one in 2**30 is missed.
        square: sum of squares.
        projections: sums with pseudo-random signs, each over a quarter of every other row; the sum of squares
            of the differences of two tensors' projections estimates the squared l2 norm of their difference
            (Charikar, Chen, Farach-Colton 2002).
    """

    digest: int
    further: int
    square: float
    projections: tuple[float, ...]


def sketch(slot: Slot, local: Tensor) -> Sketch:
    """Sketch the stretch `local` (1-D) of the full tensor that `slot` names."""
    return sketches([(slot, local)])[0]


def sketches(stretches: Sequence[tuple[Slot, Tensor]]) -> list[Sketch]:
    """Sketch stretches of full tensors, in their order."""
    groups: dict[tuple[torch.dtype, torch.device], list[int]] = {}
    for at, (_, values) in enumerate(stretches):
        groups.setdefault((values.dtype, values.device), []).append(at)
    found: dict[int, Sketch] = {}
    for group in groups.values():
        # Models are called under autocast, where products would round.
        with torch.autocast(stretches[group[0]][1].device.type, enabled=False):
            made = _alike([stretches[at] for at in group])
        found |= dict(zip(group, made, strict=True))
    return [found[at] for at in range(len(stretches))]


@dataclass(frozen=True, slots=True)
class _Products:
    """Products of rows with keys and signs, and to whom they belong.

    Args:
        sums: of rows; squares of segments.
        tables: of the rows.
        starts: the first row of each segment; a segment's rows are of one stretch.
        owners: which.
    """

    sums: RowSums
    tables: RowTables
    starts: list[int]
    owners: list[int]


class _Sums:
    """Sums over each of several stretches."""

    def __init__(self, stretches: int) -> None:
        self.digests = np.zeros((DIGESTS, stretches), np.uint64)
        self.squares = np.zeros(stretches)
        self.projections = np.zeros((PROJECTIONS, stretches))

    def add(self, made: _Products) -> None:
        keys, signs = made.tables
        keyed = made.sums.bytes_sums.view(np.uint64) * keys
        signed = (signs[:, None] * made.sums.signed_sums[None]).reshape(PROJECTIONS, -1)
        owners = made.owners
        np.add.at(self.digests.T, owners, np.add.reduceat(keyed, made.starts, 1).T)
        np.add.at(self.projections.T, owners, np.add.reduceat(signed, made.starts, 1).T)
        np.add.at(self.squares, owners, made.sums.squares)

    def sketches(self) -> list[Sketch]:
        columns = zip(*self.digests.tolist(), self.squares.tolist(), self.projections.T.tolist(), strict=True)
        return [Sketch(digest, further, square, tuple(some)) for digest, further, square, some in columns]


@dataclass(frozen=True, slots=True)
class _Piece:
    """Elements of a stretch that follow one another in the full tensor, from the index `start` on."""

    owner: int
    start: int
    values: Tensor


def _alike(stretches: Sequence[tuple[Slot, Tensor]]) -> list[Sketch]:
    """Sketch stretches of one dtype on one device."""
    sums = _Sums(len(stretches))
    rows: list[_Piece] = []
    ends: list[_Piece] = []
    for owner, (slot, local) in enumerate(stretches):
        values = local if local.is_contiguous() else local.contiguous()
        if slot.start is None:
            for made in _of_box(owner, slot, values):
                sums.add(made)
            continue
        head = min(-slot.start % ROW, slot.numel)
        tail = head + (slot.numel - head) // ROW * ROW
        for into, begin, end in ((ends, 0, head), (rows, head, tail), (ends, tail, slot.numel)):
            if end > begin:
                into.append(_Piece(owner, slot.start + begin, values[begin:end]))
    if rows:
        sums.add(_of_rows(rows))
    for some in (ends[at : at + _ENDS] for at in range(0, len(ends), _ENDS)):
        sums.add(_of_ends(some))
    return sums.sketches()


def _of_rows(pieces: list[_Piece]) -> _Products:
    """Of pieces that are whole rows, read in place."""
    wide_type = torch.float32 if pieces[0].values.dtype in _NARROW else torch.float64
    made = products([piece.values.view(-1, ROW) for piece in pieces], wide_type)
    spans = tuple((piece.start // ROW, piece.values.numel() // ROW) for piece in pieces)
    starts = list(itertools.accumulate((count for _, count in spans[:-1]), initial=0))
    return _Products(made, tables_of_spans(spans), starts, [piece.owner for piece in pieces])


def _of_ends(pieces: list[_Piece]) -> _Products:
    """Of parts of a row each, with zeros around them; in float64."""
    first = pieces[0].values
    rows = torch.zeros(len(pieces), ROW, dtype=first.dtype, device=first.device)
    flat = rows.view(-1)
    for row, piece in enumerate(pieces):
        begin = row * ROW + piece.start % ROW
        flat[begin : begin + piece.values.numel()].copy_(piece.values)
    return _Products(
        products(rows.view(-1, 1, ROW).unbind(), torch.float64),
        tables_of_spans(tuple((piece.start // ROW, 1) for piece in pieces)),
        list(range(len(pieces))),
        [piece.owner for piece in pieces],
    )


def _of_box(owner: int, slot: Slot, values: Tensor) -> Iterator[_Products]:
    """Of elements that do not follow one another in the full tensor, one by one."""
    for begin in range(0, slot.numel, _BOX_CHUNK):
        some = values[begin : begin + _BOX_CHUNK]
        indices = _indices(slot, begin, some.numel(), some.device)
        rows, places = torch.div(indices, ROW, rounding_mode="floor"), indices % ROW
        numbers, inverse = torch.unique(rows, return_inverse=True)
        width = some.element_size()
        each = places[:, None] * width + torch.arange(width, device=some.device)
        keys = byte_keys(some.device)[:, each].to(torch.int64)
        products = (some.view(torch.int8).view(-1, width).to(torch.int64) * keys).sum(2)
        by_row = products.new_zeros(DIGESTS, len(numbers)).index_add_(1, inverse, products)
        wide = some.to(torch.float64)
        signed = wide * torch.cat(sign_tables(some.device, torch.float64))[places]
        flat = torch.div(places * STRETCHES, ROW, rounding_mode="floor") * len(numbers) + inverse
        by_stretch = wide.new_zeros(STRETCHES * len(numbers)).index_add_(0, flat, signed)
        sums = RowSums(
            by_row.cpu().numpy(),
            by_stretch.view(STRETCHES, -1).cpu().numpy(),
            wide.square().sum(0, keepdim=True).cpu().numpy(),
        )
        yield _Products(sums, row_tables(numbers.cpu()), [0], [owner])


def _indices(slot: Slot, begin: int, numel: int, device: torch.device) -> Tensor:
    """Flat indices in the full tensor of elements `begin` to `begin + numel` of a box, int64."""
    inside = torch.arange(begin, begin + numel, device=device)
    assert slot.box is not None
    offsets, sizes = slot.box
    flat = torch.zeros_like(inside)
    for dimension, (offset, size) in enumerate(zip(offsets, sizes, strict=True)):
        inner = math.prod(sizes[dimension + 1 :])
        flat += (torch.div(inside, inner, rounding_mode="floor") % size + offset) * math.prod(
            slot.shape[dimension + 1 :]
        )
    return flat
