"""Tensors made of other tensors: pieces of ranks put together, a stretch cut out, dimensions re-ordered.

Each is a `TensorSource`; none holds more than a block, except `StridedTensor`, which says why.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from checkpoint_convert.model import BLOCK_BYTES, DType, TensorSource, numel
from checkpoint_convert.strided import strided_blocks


@dataclass(frozen=True, slots=True, eq=False)
class MemoryTensor:
    """A small tensor whose bytes are at hand: little-endian, row-major."""

    dtype: DType
    shape: tuple[int, ...]
    data: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if min(self.shape, default=0) < 0 or len(self.data) != numel(self.shape) * self.dtype.itemsize:
            raise ValueError(f"{len(self.data)} bytes for a tensor of size {self.shape}")

    def blocks(self, start: int, stop: int) -> Iterator[memoryview]:
        """See `TensorSource.blocks`."""
        item = self.dtype.itemsize
        view = memoryview(self.data)[start * item : stop * item]
        for at in range(0, len(view), BLOCK_BYTES):
            yield view[at : at + BLOCK_BYTES]


class ConcatTensor:
    """Tensors one after another in row-major order: the shards of dimension 0, or of a flat parameter.

    Args:
        shape: of the whole; its elements are those of `parts` in order, and no others.

    Attributes:
        starts: the number of each part's first element, and after them that of all elements.
    """

    __slots__ = ("dtype", "parts", "shape", "starts")

    def __init__(self, parts: Sequence[TensorSource], dtype: DType, shape: tuple[int, ...]) -> None:
        self.parts = tuple(part for part in parts if numel(part.shape))
        self.dtype, self.shape = dtype, shape
        self.starts = (0, *accumulate(numel(part.shape) for part in self.parts))
        if self.starts[-1] != numel(shape):
            raise ValueError(f"parts of {self.starts[-1]} elements for a tensor of size {shape}")

    def blocks(self, start: int, stop: int) -> Iterator[memoryview]:
        """See `TensorSource.blocks`."""
        index = max(0, bisect_right(self.starts, start) - 1)
        while start < stop:
            begin, end = self.starts[index], self.starts[index + 1]
            until = min(stop, end)
            yield from self.parts[index].blocks(start - begin, until - begin)
            start, index = until, index + 1


@dataclass(frozen=True, slots=True, eq=False)
class SliceTensor:
    """A stretch of a tensor's elements, seen in another shape: one parameter of a flat parameter."""

    whole: TensorSource
    offset: int
    shape: tuple[int, ...]

    @property
    def dtype(self) -> DType:
        """Of the tensor it is cut from."""
        return self.whole.dtype

    def blocks(self, start: int, stop: int) -> Iterator[memoryview]:
        """See `TensorSource.blocks`."""
        return self.whole.blocks(self.offset + start, self.offset + stop)


@dataclass(frozen=True, slots=True, eq=False)
class StridedTensor:
    """Row-major elements out of a 1-D tensor that holds them in memory order (channels_last and the like).

    Holds the whole of `memory` while it is read: any element may be anywhere in it.
    """

    memory: TensorSource
    shape: tuple[int, ...]
    stride: tuple[int, ...]

    @property
    def dtype(self) -> DType:
        """Of the memory."""
        return self.memory.dtype

    def blocks(self, start: int, stop: int) -> Iterator[memoryview]:
        """See `TensorSource.blocks`."""
        span = numel(self.memory.shape)
        return strided_blocks(
            lambda: self.memory.blocks(0, span),
            span,
            self.dtype.itemsize,
            self.shape,
            self.stride,
            start,
            stop,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Box:
    """A rectangular piece of a tensor: where it begins, and its elements."""

    offsets: tuple[int, ...]
    piece: TensorSource


class BoxTensor:
    """A tensor of rectangular pieces that cover it exactly: shards over several dimensions, DCP chunks.

    Raises:
        ValueError: the pieces leave a hole, overlap, or reach outside.
    """

    __slots__ = ("_boxes", "_firsts", "dtype", "shape")

    def __init__(self, boxes: Sequence[Box], dtype: DType, shape: tuple[int, ...]) -> None:
        self.dtype, self.shape = dtype, shape
        self._boxes = sorted((box for box in boxes if numel(box.piece.shape)), key=lambda box: box.offsets)
        self._firsts = [box.offsets[0] for box in self._boxes if box.offsets]
        check_cover([(box.offsets, box.piece.shape) for box in self._boxes], shape)

    @property
    def boxes(self) -> Sequence[Box]:
        """The pieces that hold elements, by offset."""
        return self._boxes

    def blocks(self, start: int, stop: int) -> Iterator[memoryview]:
        """See `TensorSource.blocks`."""
        while start < stop:
            box, inside, count = self._run_at(start)
            count = min(count, stop - start)
            yield from box.piece.blocks(inside, inside + count)
            start += count

    def _run_at(self, element: int) -> tuple[Box, int, int]:
        """The box of a row-major element, the element's number inside it, and how many follow in one run."""
        index = []
        for size in reversed(self.shape):
            element, at = divmod(element, size)
            index.append(at)
        index.reverse()
        box = self._box_of(index)
        inside, count, full = 0, 1, True
        for dim in range(len(self.shape) - 1, -1, -1):
            size = box.piece.shape[dim]
            at = index[dim] - box.offsets[dim]
            inside += at * math.prod(box.piece.shape[dim + 1 :])
            if full:
                # A run goes on as long as the box is as wide as the tensor in every later dimension.
                count = (size - at) * math.prod(box.piece.shape[dim + 1 :])
                full = size == self.shape[dim] and at == 0
        return box, inside, count

    def _box_of(self, index: Sequence[int]) -> Box:
        last = bisect_right(self._firsts, index[0]) - 1 if index else 0
        while not _holds(self._boxes[last], index):
            last -= 1
        return self._boxes[last]


def _holds(box: Box, index: Sequence[int]) -> bool:
    return all(
        offset <= at < offset + size
        for offset, size, at in zip(box.offsets, box.piece.shape, index, strict=True)
    )


def check_cover(boxes: Sequence[tuple[tuple[int, ...], tuple[int, ...]]], shape: tuple[int, ...]) -> None:
    """Hold boxes (offsets, sizes) against the tensor they should make up.

    Raises:
        ValueError: a box reaches outside, two overlap, or elements are missing.
    """
    for offsets, sizes in boxes:
        if len(offsets) != len(shape) or any(
            offset < 0 or size < 0 or offset + size > whole
            for offset, size, whole in zip(offsets, sizes, shape, strict=False)
        ):
            raise ValueError(f"a piece of size {sizes} at {offsets} reaches outside size {shape}")
    held = sum(numel(sizes) for _, sizes in boxes)
    if held != numel(shape):
        raise ValueError(f"pieces hold {held} of {numel(shape)} elements")
    _check_disjoint([box for box in boxes if numel(box[1])])


def _check_disjoint(boxes: Sequence[tuple[tuple[int, ...], tuple[int, ...]]]) -> None:
    """Sweep over dimension 0; only boxes that meet there are compared."""
    active: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    for offsets, sizes in sorted(boxes):
        if not offsets:
            continue
        active = [other for other in active if other[0][0] + other[1][0] > offsets[0]]
        for other_offsets, other_sizes in active:
            if all(
                a < b + other and b < a + size
                for a, size, b, other in zip(offsets, sizes, other_offsets, other_sizes, strict=True)
            ):
                raise ValueError(f"the pieces at {other_offsets} and {offsets} overlap")
        active.append((offsets, sizes))
