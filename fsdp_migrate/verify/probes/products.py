"""Products of rows with keys and signs, a block of rows at a time: what a sketch spends its time on.

A block fits a cache, so that memory is read once. Pieces that follow one another in memory, as those of a
flat parameter do, are read as one: starting a product costs as much as it costs on some dozens of rows.

On a CPU floats are multiplied by numpy's BLAS, which is twice as fast as torch's on processors that are not
Intel's, and starts a product in half the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fsdp_migrate.verify.older_torch import has_whole_number_products
from fsdp_migrate.verify.probes.keys import (
    DIGESTS,
    ROW,
    STRETCHES,
    byte_columns,
    byte_keys,
    byte_sums_as_floats,
    sign_tables,
)
from fsdp_migrate.verify.probes.raw_bytes import raw_floats

_ROWS = {"cpu": 1 << 8}
_ROWS_ELSEWHERE = 1 << 10
"""Of a block, which bounds what is copied of it."""
_SAFE_SQUARE = (1e-30, 1e30)
_STRETCH = ROW // STRETCHES


@dataclass(frozen=True, slots=True)
class RowSums:
    """What products with rows give.

    Args:
        bytes_sums: (DIGESTS, rows) whole numbers.
        signed_sums: (STRETCHES, rows).
        squares: (segments) sums of squares.
    """

    bytes_sums: NDArray[np.int64]
    signed_sums: NDArray[np.float64]
    squares: NDArray[np.float64]


@dataclass(slots=True)
class _Block:
    """Parts that follow one another in memory.

    Args:
        first: where the first part begins.
        counts: rows of each part.
        rows: of all.
    """

    first: Tensor
    counts: list[int]
    rows: int

    def tensor(self) -> Tensor:
        """All its rows, (rows, 4096)."""
        if len(self.counts) == 1:
            return self.first
        return self.first.as_strided((self.rows, ROW), (ROW, 1))


def products(segments: Sequence[Tensor], wide_type: torch.dtype) -> RowSums:
    """Products of the rows of all segments, in their order.

    Args:
        segments: contiguous, (rows, 4096) each; of one dtype and on one device.
        wide_type: float32 or float64, in which elements are multiplied.
    """
    size = _ROWS.get(segments[0].device.type, _ROWS_ELSEWHERE)
    parts = [
        part
        for segment in segments
        for part in (torch.split(segment, size) if segment.shape[0] > size else (segment,))
    ]
    blocks = _blocks(parts, size)
    by_blas = segments[0].device.type == "cpu" and _has_whole_number_products()
    bytes_sums, signed_sums, squares = (_by_blas if by_blas else _by_torch)(blocks, wide_type)
    first_parts = np.cumsum([0, *(-(-segment.shape[0] // size) for segment in segments[:-1])])
    starts = np.cumsum([0, *(part.shape[0] for part in parts[:-1])])
    is_zero = ~np.logical_or.reduceat(bytes_sums.any(axis=0), starts)
    of_parts = _in_range(squares.astype(np.float64), parts, is_zero)
    return RowSums(
        bytes_sums.astype(np.int64),
        signed_sums.astype(np.float64),
        np.add.reduceat(of_parts, first_parts),
    )


def _blocks(parts: list[Tensor], size: int) -> list[_Block]:
    """Blocks of no more than `size` rows."""
    blocks: list[_Block] = []
    home, end = 0, 0
    for part in parts:
        count, begin, storage = part.shape[0], part.data_ptr(), part.untyped_storage().data_ptr()
        if begin == end and storage == home and blocks[-1].rows + count <= size:
            blocks[-1].counts.append(count)
            blocks[-1].rows += count
        else:
            blocks.append(_Block(part, [count], count))
        home, end = storage, begin + count * ROW * part.element_size()
    return blocks


@lru_cache(maxsize=1)
def _has_whole_number_products() -> bool:
    return has_whole_number_products()


def _by_blas(
    blocks: list[_Block], wide_type: torch.dtype
) -> tuple[NDArray[np.int32], NDArray[np.floating], NDArray[np.floating]]:
    """On a CPU, where a product with one column is many times faster than one with several."""
    cpu = torch.device("cpu")
    kind = np.float32 if wide_type is torch.float32 else np.float64
    sizes = [block.rows for block in blocks]
    bytes_sums = torch.empty(DIGESTS, sum(sizes), 1, dtype=torch.int32)
    signed_sums = np.empty((STRETCHES, sum(sizes)), kind)
    squares: list[np.floating] = []
    signs = [table.numpy() for table in sign_tables(cpu, wide_type)]
    begin = 0
    with np.errstate(all="ignore"):
        for block, *columns in zip(
            blocks, *(each.split_with_sizes(sizes) for each in bytes_sums.unbind()), strict=True
        ):
            rows = block.tensor()
            as_bytes = rows.view(torch.int8)
            for key, column in zip(byte_columns(cpu, as_bytes.shape[1]), columns, strict=True):
                torch._int_mm(as_bytes, key, out=column)
            elements = rows.to(wide_type)  # held while they are read
            wide = raw_floats(elements)
            for number, table in enumerate(signs):
                stretch = wide[:, number * _STRETCH : (number + 1) * _STRETCH]
                np.matmul(stretch, table, out=signed_sums[number, begin : begin + block.rows])
            flat = wide.reshape(-1)
            at = 0
            for count in block.counts:
                part = flat[at : at + count * ROW]
                squares.append(np.dot(part, part))
                at += count * ROW
            begin += block.rows
    return bytes_sums.numpy().reshape(DIGESTS, -1), signed_sums, np.array(squares)


def _by_torch(
    blocks: list[_Block], wide_type: torch.dtype
) -> tuple[NDArray[np.int64], NDArray[np.floating], NDArray[np.floating]]:
    """On a GPU, and where whole numbers have no products."""
    device, sizes = blocks[0].first.device, [block.rows for block in blocks]
    bytes_sums = torch.empty(DIGESTS, sum(sizes), dtype=torch.int64, device=device)
    signed_sums = torch.empty(STRETCHES, sum(sizes), dtype=wide_type, device=device)
    squares = torch.empty(sum(len(block.counts) for block in blocks), dtype=wide_type, device=device)
    of_parts = iter(squares.unbind())
    outputs = (bytes_sums.split_with_sizes(sizes, 1), signed_sums.split_with_sizes(sizes, 1))
    for block, whole, sums in zip(blocks, *outputs, strict=True):
        rows = block.tensor()
        as_bytes = rows.view(torch.int8)
        keys = byte_keys(device)[:, : as_bytes.shape[1]].T
        whole.copy_(byte_sums_as_floats(as_bytes, keys).T)
        wide = rows.to(wide_type)
        tables = sign_tables(device, wide_type)
        for stretch, signs, column in zip(wide.chunk(STRETCHES, 1), tables, sums.unbind(), strict=True):
            torch.mv(stretch, signs, out=column)
        for part in wide.split_with_sizes(block.counts):
            flat = part.view(-1)
            torch.dot(flat, flat, out=next(of_parts))
    return bytes_sums.cpu().numpy(), signed_sums.cpu().numpy(), squares.cpu().numpy()


def _in_range(
    squares: NDArray[np.float64], parts: list[Tensor], is_zero: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Sums of squares; again in float64 where float32 may have left its range.

    Args:
        is_zero: parts whose bytes add up to 0, as rows of an embedding that got no gradient do.
    """
    low, high = _SAFE_SQUARE
    for number in np.flatnonzero(~((squares > low) & (squares < high) | is_zero)):
        squares[number] = float(parts[number].double().square().sum())
    return squares
