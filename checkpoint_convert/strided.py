"""Elements in row-major order out of memory that holds them in another one (`torch.as_strided`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from checkpoint_convert.model import BLOCK_BYTES, numel

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]


def strided_blocks(
    memory: Callable[[], Iterator[memoryview]],
    span: int,
    itemsize: int,
    shape: Sequence[int],
    stride: Sequence[int],
    start: int,
    stop: int,
) -> Iterator[memoryview]:
    """Elements `start` to `stop` of a strided view.

    The whole of the one tensor's memory is held while its blocks are taken: such tensors (transposed
    or channels_last weights) are few, and each element may lie anywhere in it.

    Args:
        memory: reads the elements of the view's memory, `span` of them, in memory order.
        itemsize: bytes of one element.
        shape, stride: the view, in elements.
    """
    if stop <= start:
        return
    import numpy

    held = bytearray(span * itemsize)
    at = 0
    for block in memory():
        held[at : at + len(block)] = block
        at += len(block)
    flat: Array = numpy.frombuffer(held, dtype=f"V{itemsize}")
    view = numpy.lib.stride_tricks.as_strided(
        flat, shape=tuple(shape), strides=[step * itemsize for step in stride], writeable=False
    )
    yield from _rows(view, itemsize, start, stop)


def _rows(view: Array, itemsize: int, start: int, stop: int) -> Iterator[memoryview]:
    """Row-major elements of an array, in blocks, by halving the range until a block is small enough."""
    import numpy

    if view.ndim == 0:
        yield memoryview(view.tobytes())
        return
    inner = numel(view.shape[1:])
    if inner * itemsize > BLOCK_BYTES:
        for row in range(start // inner, -(-stop // inner)):
            base = row * inner
            yield from _rows(view[row], itemsize, max(start - base, 0), min(stop - base, inner))
        return
    rows_per_block = max(1, BLOCK_BYTES // max(1, inner * itemsize))
    row, last = start // inner, -(-stop // inner)
    while row < last:
        until = min(row + rows_per_block, last)
        data = memoryview(numpy.ascontiguousarray(view[row:until]).tobytes())
        base = row * inner
        yield data[max(start - base, 0) * itemsize : (min(stop, until * inner) - base) * itemsize]
        row = until
