"""Cutting a tensor: every element once, in order, in rectangles that torch can narrow to."""

import math

import torch
from hypothesis import given
from hypothesis import strategies as st

from checkpoint_convert.writers.chunks import cut

shapes = st.lists(st.integers(0, 7), max_size=4).map(tuple)


@given(shapes, st.sampled_from([1, 2, 4, 8]), st.integers(1, 300), st.integers(1, 9))
def test_chunks_cover_a_tensor_once_and_in_order(
    shape: tuple[int, ...], itemsize: int, chunk_bytes: int, ranks: int
) -> None:
    whole = torch.arange(math.prod(shape)).reshape(shape)
    end = 0
    for chunk in cut(shape, itemsize, chunk_bytes, ranks):
        assert chunk.start == end
        end = chunk.stop
        part = whole
        for dim, (offset, size) in enumerate(zip(chunk.offsets, chunk.sizes, strict=True)):
            part = part.narrow(dim, offset, size)
        assert part.flatten().tolist() == list(range(chunk.start, chunk.stop))
        assert part.numel() * itemsize <= max(chunk_bytes, itemsize)
    assert end == whole.numel()


@given(st.lists(st.integers(1, 9), min_size=1, max_size=3).map(tuple), st.integers(1, 12))
def test_ranks_get_the_rows_that_torch_chunk_gives_them(shape: tuple[int, ...], ranks: int) -> None:
    rows = dict.fromkeys(range(ranks), 0)
    for chunk in cut(shape, 4, 64, ranks):
        rows[chunk.rank] += chunk.stop - chunk.start
    parts = torch.chunk(torch.empty(shape), ranks)
    assert list(rows.values()) == [part.numel() for part in parts] + [0] * (ranks - len(parts))


def test_rows_larger_than_a_chunk_are_cut_along_the_next_dimension() -> None:
    chunks = list(cut((2, 10, 4), 4, 64))
    assert [(chunk.offsets, chunk.sizes) for chunk in chunks] == [
        ((0, 0, 0), (1, 4, 4)),
        ((0, 4, 0), (1, 4, 4)),
        ((0, 8, 0), (1, 2, 4)),
        ((1, 0, 0), (1, 4, 4)),
        ((1, 4, 0), (1, 4, 4)),
        ((1, 8, 0), (1, 2, 4)),
    ]


def test_empty_and_scalar_tensors_are_one_chunk() -> None:
    assert [(chunk.offsets, chunk.sizes) for chunk in cut((), 4, 64)] == [((), ())]
    assert [(chunk.offsets, chunk.sizes) for chunk in cut((0, 3), 4, 64, 2)] == [((0, 0), (0, 3))]
