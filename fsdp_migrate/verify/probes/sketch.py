"""What is kept of a tensor that is too large to keep: digest, norm, and projections, whatever its sharding.

All three are sums over elements that depend on an element's value and its index in the full tensor alone. So
every rank sums over what it holds, and the sums of the ranks add up to the same result under any sharding:
equality and the size of a difference can be told without gathering anything.

The full tensor is read in rows of 4096 elements. A row's bytes times small random keys give two whole
numbers, which are exact; its elements times random signs give four, one for each stretch of 1024. Both are
matrix-vector products, so that a sketch reads memory four times and writes none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fsdp_migrate.verify.probes.shards import Slot

PROJECTIONS = 8
_ROW = 4096
_STRETCHES = PROJECTIONS // 2
_COLUMNS = 2
_WIDEST = 8
_CHUNK = 1 << 10
"""Rows that are read at once, which bounds what is copied of them."""
_SAFE_SQUARE = (1e-30, 1e30)
_RowTables: TypeAlias = tuple[NDArray[np.uint64], NDArray[np.float64]]


@dataclass(frozen=True, slots=True)
class Sketch:
    """Sums over the elements one rank holds.

    Args:
        digest: modulo 2**64; equal for equal bits. Of unequal ones that differ in two bytes of a row, one in
            65,000 is missed; in one byte, none.
        square: sum of squares.
        projections: sums with pseudo-random signs, each over a quarter of every other row; the sum of squares
            of the differences of two tensors' projections estimates the squared l2 norm of their difference
            (Charikar, Chen, Farach-Colton 2002).
    """

    digest: int
    square: float
    projections: tuple[float, ...]


def sketch(slot: Slot, local: Tensor) -> Sketch:
    """Sketch the stretch `local` (1-D) of the full tensor that `slot` names."""
    sums = _Sums()
    values = local.contiguous()
    if slot.start is None:
        _add_box(sums, slot, values)
    elif slot.start % _ROW == slot.numel % _ROW == 0 and slot.numel <= _CHUNK * _ROW:
        _add_rows(sums, values.view(-1, _ROW), slot.start // _ROW, exact=False)
    else:
        begin, end = slot.start, slot.start + slot.numel
        head = min(-begin % _ROW, slot.numel)
        rows = (slot.numel - head) // _ROW
        _add_part(sums, values[:head], begin)
        for first in range(0, rows, _CHUNK):
            some = min(_CHUNK, rows - first)
            at = head + first * _ROW
            _add_rows(sums, values[at : at + some * _ROW].view(some, _ROW), (begin + at) // _ROW, exact=False)
        tail = head + rows * _ROW
        _add_part(sums, values[tail:], end - (slot.numel - tail))
    return Sketch(sums.digest % (1 << 64), sums.square, tuple(sums.projections.tolist()))


class _Sums:
    def __init__(self) -> None:
        self.digest, self.square = 0, 0.0
        self.projections: NDArray[np.float64] = np.zeros(PROJECTIONS)

    def add(self, bytes_sums: Tensor, signed_sums: Tensor, tables: _RowTables) -> None:
        """Add rows.

        Args:
            bytes_sums: (rows, _COLUMNS) whole numbers.
            signed_sums: (rows, _STRETCHES).
        """
        keys, signs = tables
        exact = bytes_sums.cpu().numpy().astype(np.int64).view(np.uint64)
        self.digest += int((exact * keys).sum(dtype=np.uint64))
        self.projections += (signs @ signed_sums.cpu().numpy()).reshape(-1)


def _add_part(sums: _Sums, values: Tensor, start: int) -> None:
    """Add part of a row, or of two neighbouring ones, with zeros around it."""
    if not values.numel():
        return
    before = start % _ROW
    row = torch.zeros(-(-(before + values.numel()) // _ROW) * _ROW, dtype=values.dtype, device=values.device)
    row[before : before + values.numel()] = values
    _add_rows(sums, row.view(-1, _ROW), start // _ROW, exact=True)


def _add_rows(sums: _Sums, rows: Tensor, first: int, *, exact: bool) -> None:
    """Add whole rows, (n, 4096); `exact`: in float64, which costs a copy."""
    bytes_sums = _byte_sums(rows.view(torch.int8))
    narrow = rows.dtype in (torch.float32, torch.bfloat16, torch.float16) and not exact
    wide = rows.to(torch.float32 if narrow else torch.float64)
    sums.square += _square(wide)
    tables = _sign_tables(wide.device, wide.dtype)
    quarters = wide.chunk(_STRETCHES, 1)
    signed = torch.stack([torch.mv(*pair) for pair in zip(quarters, tables, strict=True)], 1)
    sums.add(bytes_sums, signed, _consecutive(first, len(rows)))


def _square(wide: Tensor) -> float:
    """Sum of squares; again in float64 where float32 may have left its range."""
    flat = wide.reshape(-1)
    square = float(torch.dot(flat, flat))
    if wide.dtype is torch.float32 and not _SAFE_SQUARE[0] < square < _SAFE_SQUARE[1]:
        square = float(flat.double().square().sum())
    return square


def _byte_sums(rows: Tensor) -> Tensor:
    """Bytes (n, bytes of a row) times the keys of their places: whole numbers below 2**31, (n, _COLUMNS)."""
    keys = _byte_columns(rows.device, rows.shape[1])
    if rows.device.type == "cpu":
        return torch.cat([torch._int_mm(rows, column) for column in keys], 1)
    return (rows.to(torch.float64) @ torch.cat(keys, 1).to(torch.float64)).to(torch.int64)


def _add_box(sums: _Sums, slot: Slot, values: Tensor) -> None:
    """Add elements that do not follow one another in the full tensor, one by one."""
    for begin in range(0, slot.numel, _CHUNK * 64):
        some = values[begin : begin + _CHUNK * 64]
        indices = _indices(slot, begin, some.numel(), some.device)
        rows, places = torch.div(indices, _ROW, rounding_mode="floor"), indices % _ROW
        numbers, inverse = torch.unique(rows, return_inverse=True)
        width = some.element_size()
        each = places[:, None] * width + torch.arange(width, device=some.device)
        keys = _byte_keys(some.device).to(torch.int64)
        products = some.view(torch.int8).view(-1, width).to(torch.int64) * keys[:, each]
        by_row = products.new_zeros(len(numbers), _COLUMNS).index_add_(0, inverse, products.sum(2).T)
        wide = some.to(torch.float64)
        sums.square += float(wide.square().sum())
        signed = wide * torch.cat(_sign_tables(some.device, torch.float64))[places]
        flat = inverse * _STRETCHES + torch.div(places * _STRETCHES, _ROW, rounding_mode="floor")
        by_stretch = wide.new_zeros(len(numbers) * _STRETCHES).index_add_(0, flat, signed)
        sums.add(by_row, by_stretch.view(-1, _STRETCHES), _row_tables(numbers.cpu()))


@lru_cache
def _byte_keys(device: torch.device) -> Tensor:
    """Keys of the places in a row: int8 of shape (_COLUMNS, bytes of the widest row), none of them 0."""
    places = torch.arange(_COLUMNS * _ROW * _WIDEST)
    keys = (_mixed(places) >> 20) % 127 + 1
    signs = ((_mixed(places) >> 50) & 1) * 2 - 1
    signed: Tensor = keys * signs
    return signed.to(torch.int8).view(_COLUMNS, -1).to(device)


@lru_cache
def _byte_columns(device: torch.device, width: int) -> tuple[Tensor, ...]:
    """The keys of the first `width` bytes, as columns (width, 1)."""
    return tuple(key[:width, None].contiguous() for key in _byte_keys(device))


@lru_cache
def _sign_tables(device: torch.device, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """+1 and -1 for the places in a row, a stretch each."""
    signs = ((_mixed(torch.arange(_ROW) + (1 << 40)) >> 33) & 1) * 2 - 1
    return signs.to(device=device, dtype=dtype).chunk(_STRETCHES)


@lru_cache(maxsize=4096)
def _consecutive(first: int, count: int) -> _RowTables:
    return _row_tables(torch.arange(first, first + count))


def _row_tables(rows: Tensor) -> _RowTables:
    """Odd keys (count, _COLUMNS) of rows; their signs (2, count), those of even rows first."""
    numbers = rows[:, None] * _COLUMNS + torch.arange(_COLUMNS)
    keys = _mixed(numbers + (1 << 50)).numpy().view(np.uint64)
    signs = (((_mixed(rows + (1 << 45)) >> 35) & 1) * 2 - 1) * torch.stack([rows % 2 == 0, rows % 2 == 1])
    return keys, signs.to(torch.float64).numpy()


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


def _mixed(indices: Tensor) -> Tensor:
    """Odd pseudo-random 64-bit keys from indices: a multiply-xorshift mixer, wrapping as int64 does."""
    keys = indices * -7046029254386353131 + -4417276706812531889
    keys = (keys ^ (keys >> 29)) * -4658895280553007687
    keys = (keys ^ (keys >> 32)) * -7723592293110705685
    odd: Tensor = keys | 1
    return odd


def nudge(values: Tensor, size: float, *, of_sums: bool = False) -> None:
    """Multiply every element by 1 + size or 1 - size, the sign drawn from its position; in place.

    Args:
        of_sums: change elements that are not 0 by as much as one of usual size, however small they are: where
            terms nearly cancel, adding them up in another order changes what is left by as much.
    """
    flat = torch.arange(values.numel(), device=values.device)
    signs = ((_mixed(flat) >> 17) & 1) * 2 - 1
    if of_sums:
        wide = values.to(torch.float64)
        usual = wide.square().mean().sqrt()
        added = size * signs.view_as(wide) * torch.maximum(wide.abs(), usual)
        values.copy_(torch.where(values == 0, wide, wide + added))
        return
    values.mul_((1 + size * signs.to(torch.float64)).to(values.dtype).view_as(values))
