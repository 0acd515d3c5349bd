"""What is kept of a tensor that is too large to keep: digest, norm, and projections, whatever its sharding.

All three are sums over elements that depend on an element's value and its index in the full tensor alone. So
every rank sums over what it holds, and the sums of the ranks add up to the same result under any sharding:
equality and the size of a difference can be told without gathering anything.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from fsdp_migrate.verify.probes.shards import Slot

PROJECTIONS = 8
_CHUNK = 1 << 22
_SHIFT = 12
_BLOCK = 1 << _SHIFT
_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True, slots=True)
class Sketch:
    """Sums over the elements one rank holds.

    Args:
        digest: modulo 2**64; equal for equal bits, and for practical purposes only then.
        square: sum of squares, float64.
        projections: sums with pseudo-random signs, float64; the mean square of the differences of two
            tensors' projections estimates the squared l2 norm of their difference (Alon, Matias, Szegedy
            1996).
    """

    digest: int
    square: float
    projections: tuple[float, ...]


def sketch(slot: Slot, local: Tensor) -> Sketch:
    """Sketch the stretch `local` (1-D) of the full tensor that `slot` names.

    An element's key and signs are products of one for its block of 4096 and one for its place in the block,
    so that a contiguous stretch is read once and multiplied by small tables: about 70 bytes of memory traffic
    an element.
    """
    digest, square, projections = 0, 0.0, torch.zeros(PROJECTIONS, dtype=torch.float64, device=local.device)
    for begin in range(0, slot.numel, _CHUNK):
        values = local[begin : begin + _CHUNK].contiguous()
        bits = values.view(_BITS[values.element_size()]).to(torch.int64)
        wide = values.to(torch.float64)
        square += float(wide.square().sum())
        if slot.start is not None:
            digest += int(_keyed(bits, slot.start + begin))
            projections += _projected(wide, slot.start + begin)
        else:
            indices = _indices(slot, begin, values.numel(), values.device)
            blocks, places = indices >> _SHIFT, indices & (_BLOCK - 1)
            digest += int((bits * _keys(blocks, 1) * _keys(places, 0)).sum())
            projections += (_signs(blocks, 1) * _signs(places, 0) * wide[:, None]).sum(0)
    return Sketch(digest % (1 << 64), square, tuple(projections.tolist()))


def _keyed(bits: Tensor, start: int) -> Tensor:
    """Sum of bits times keys, wrapping: int64, 0-dim."""
    rows, first = _rows(bits, start)
    blocks = torch.arange(first, first + len(rows), device=bits.device)
    return ((rows * _tables(bits.device)[0]).sum(1) * _keys(blocks, 1)).sum()


def _projected(wide: Tensor, start: int) -> Tensor:
    """Sums with signs: float64 of shape (PROJECTIONS,)."""
    rows, first = _rows(wide, start)
    blocks = torch.arange(first, first + len(rows), device=wide.device)
    return ((rows @ _tables(wide.device)[1]) * _signs(blocks, 1)).sum(0)


def _rows(values: Tensor, start: int) -> tuple[Tensor, int]:
    """A stretch as rows of whole blocks, zeros around it, and the number of its first block."""
    before = start & (_BLOCK - 1)
    after = -(before + values.numel()) % _BLOCK
    if before or after:
        values = torch.nn.functional.pad(values, (before, after))
    return values.view(-1, _BLOCK), start >> _SHIFT


@lru_cache
def _tables(device: torch.device) -> tuple[Tensor, Tensor]:
    """Keys and signs of the places in a block."""
    places = torch.arange(_BLOCK, device=device)
    return _keys(places, 0), _signs(places, 0)


def _keys(numbers: Tensor, salt: int) -> Tensor:
    return _mixed(numbers * 2 + salt)


def _signs(numbers: Tensor, salt: int) -> Tensor:
    """+1 and -1, float64 of shape (len(numbers), PROJECTIONS)."""
    keys = _mixed(numbers * 2 + salt)
    shifts = torch.arange(7, 7 + 5 * PROJECTIONS, 5, device=numbers.device)
    return (((keys[:, None] >> shifts) & 1) * 2 - 1).to(torch.float64)


def _indices(slot: Slot, begin: int, numel: int, device: torch.device) -> Tensor:
    """Flat indices in the full tensor of elements `begin` to `begin + numel` of the stretch, int64."""
    inside = torch.arange(begin, begin + numel, device=device)
    if slot.start is not None:
        return inside + slot.start
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
    return keys | 1


def nudge(values: Tensor, size: float) -> None:
    """Multiply every element by 1 + size or 1 - size, the sign drawn from its position; in place."""
    flat = torch.arange(values.numel(), device=values.device)
    signs = ((_mixed(flat) >> 17) & 1) * 2 - 1
    values.mul_((1 + size * signs.to(torch.float64)).to(values.dtype).view_as(values))
