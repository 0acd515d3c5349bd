"""Random keys and signs for the places in a row and for rows: the same in every process and every version.

Records are compared by what was summed with them, so none of them may ever change; see `probes/sketch.py`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

ROW = 4096
"""Elements of a row."""
STRETCHES = 4
"""Of a row, which have projections of their own."""
DIGESTS = 2
_APART = 1 << 14
"""Bytes of a row of elements of four bytes."""
_LARGEST_KEY = 127
_EXACT = 1 << 10
"""Bytes of which the sum of products with keys is below 2**24."""
RowTables: TypeAlias = tuple[NDArray[np.uint64], NDArray[np.float64]]


@lru_cache
def byte_keys(device: torch.device) -> Tensor:
    """Keys of the places in a row: int8 of shape (DIGESTS, bytes of the widest row), none of them 0.

    Those of two places among 2**14 are never multiples of each other, so that no change of two bytes adds up
    to 0 in both digests. There are not enough such keys for rows of wider elements: their second half has
    those of the first, each at another byte of an element.
    """
    one, other = torch.meshgrid(
        torch.arange(1, _LARGEST_KEY + 1), torch.arange(1, _LARGEST_KEY + 1), indexing="ij"
    )
    apart = torch.gcd(one, other) == 1
    directions = torch.cat([torch.stack([one[apart], sign * other[apart]]) for sign in (1, -1)], 1)
    order = mixed(torch.arange(directions.shape[1])).sort().indices[:_APART]
    signs = ((mixed(torch.arange(_APART)) >> 50) & 1) * 2 - 1
    keys = directions[:, order] * signs
    return torch.cat([keys, keys.roll(1, 1)], 1).to(device=device, dtype=torch.int8)


@lru_cache
def byte_columns(device: torch.device, width: int) -> tuple[Tensor, ...]:
    """The keys of the first `width` bytes, as columns (width, 1)."""
    return tuple(key[:width, None].contiguous() for key in byte_keys(device))


def byte_sums_as_floats(rows: Tensor, keys: Tensor) -> Tensor:
    """Bytes (n, width) times keys (width, columns), where whole numbers have no product: int64, (n, columns).

    Exact: sums over 1024 bytes stay below 2**24, and bytes and keys have seven bits, which is less than any
    precision that matrix products of float32 may be set to.
    """
    pieces = rows.shape[1] // _EXACT
    factors = rows.view(-1, pieces, _EXACT).to(torch.float32).transpose(0, 1)
    products = torch.bmm(factors, keys.view(pieces, _EXACT, -1).to(torch.float32))
    return products.to(torch.int64).sum(0)


@lru_cache
def sign_tables(device: torch.device, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """+1 and -1 for the places in a row, a stretch each."""
    signs = ((mixed(torch.arange(ROW) + (1 << 40)) >> 33) & 1) * 2 - 1
    return signs.to(device=device, dtype=dtype).chunk(STRETCHES)


@lru_cache(maxsize=64)
def tables_of_spans(spans: tuple[tuple[int, int], ...]) -> RowTables:
    """Of rows in spans: the first one's number and how many there are."""
    return row_tables(torch.cat([torch.arange(first, first + count) for first, count in spans]))


def row_tables(rows: Tensor) -> RowTables:
    """Odd keys (DIGESTS, count) of rows; their signs (2, count), those of even rows first."""
    keys = mixed(torch.stack([rows + (1 << 50), rows + (1 << 51)])).numpy().view(np.uint64)
    signs = (((mixed(rows + (1 << 45)) >> 35) & 1) * 2 - 1) * torch.stack([rows % 2 == 0, rows % 2 == 1])
    return keys, signs.to(torch.float64).numpy()


def mixed(indices: Tensor) -> Tensor:
    """Odd pseudo-random 64-bit keys from indices: a multiply-xorshift mixer, wrapping as int64 does."""
    keys = indices * -7046029254386353131 + -4417276706812531889
    keys = (keys ^ (keys >> 29)) * -4658895280553007687
    keys = (keys ^ (keys >> 32)) * -7723592293110705685
    odd: Tensor = keys | 1
    return odd
