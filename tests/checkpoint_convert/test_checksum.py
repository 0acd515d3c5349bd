"""One CRC-32 per block that is read serves the record it comes from and the span it goes to."""

from __future__ import annotations

import itertools
import zlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checkpoint_convert.checksum import Checksum
from checkpoint_convert.errors import UnreadableError
from checkpoint_convert.file_bytes import OpenFiles
from checkpoint_convert.model import DType, TensorSource
from checkpoint_convert.runs import blocks_with_crc, file_runs
from checkpoint_convert.stored_tensor import Storage, StoredTensor
from checkpoint_convert.tensor_sources import ConcatTensor, MemoryTensor, SliceTensor

RECORD = bytes(range(1, 201))
AT = 640
PIECES = st.lists(
    st.tuples(st.integers(0, len(RECORD)), st.integers(0, len(RECORD)), st.booleans()), max_size=12
)


def checksum(expected: int) -> Checksum:
    return Checksum(Path("rank0.pt"), "data/0", AT, len(RECORD), expected)


@given(PIECES)
def test_pieces_in_any_order_make_up_the_record(pieces: list[tuple[int, int, bool]]) -> None:
    check, covered = checksum(zlib.crc32(RECORD)), set[int]()
    for one, other, is_known in pieces:
        start, stop = sorted((one, other))
        data = memoryview(RECORD)[start:stop]
        check.saw(AT + start, data, zlib.crc32(data) if is_known else None)
        covered |= set(range(start, stop))
    assert check.done is (len(covered) == len(RECORD))
    missing = {at - AT for start, stop in check.unseen() for at in range(start, stop)}
    assert missing == (set(range(len(RECORD))) - covered if covered else set())


@given(st.lists(st.integers(1, len(RECORD) - 1), unique=True, max_size=4), st.integers(0, 199), st.data())
def test_a_changed_byte_is_found_whoever_computed_the_crc(
    cuts: list[int], changed: int, data: st.DataObject
) -> None:
    damaged = bytearray(RECORD)
    damaged[changed] ^= 1
    check, edges = checksum(zlib.crc32(RECORD)), [0, *sorted(cuts), len(RECORD)]
    spans = data.draw(st.permutations(list(itertools.pairwise(edges))))
    with pytest.raises(UnreadableError, match="do not match the CRC-32"):
        for start, stop in spans:
            piece = memoryview(damaged)[start:stop]
            check.saw(AT + start, piece, zlib.crc32(piece) if data.draw(st.booleans()) else None)


@st.composite
def flat_pieces(draw: st.DrawFn) -> tuple[list[int], int, int, int, int]:
    """Elements on each rank, a parameter's place among all of them, and a stretch of the parameter."""
    ranks = draw(st.lists(st.integers(0, 30), min_size=1, max_size=5).filter(sum))
    offset = draw(st.integers(0, sum(ranks) - 1))
    size = draw(st.integers(1, sum(ranks) - offset))
    start = draw(st.integers(0, size))
    return ranks, offset, size, start, draw(st.integers(start, size))


@given(flat_pieces())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_runs_are_the_bytes_that_blocks_are(
    tmp_path: Path, pieces: tuple[list[int], int, int, int, int]
) -> None:
    ranks, offset, size, start, stop = pieces
    files, sources = OpenFiles(), list[TensorSource]()
    for rank, count in enumerate(ranks):
        path = tmp_path / f"rank{rank}.pt"
        path.write_bytes(bytes((rank + 7 * at) % 251 for at in range(4 * count + 8)))
        storage = Storage(files, path, 4, 4 * count, Checksum(path, "data/0", 4, 4 * count, 0))
        assert storage.checksum is not None
        storage.checksum.expected = zlib.crc32(path.read_bytes()[4:-4])
        sources.append(StoredTensor(storage, DType.FLOAT32, (count,), (1,)))
    whole = ConcatTensor(sources, DType.FLOAT32, (sum(ranks),))
    one = SliceTensor(whole, offset, (size,))
    expected = b"".join(map(bytes, one.blocks(start, stop)))
    runs = file_runs(one, start, stop)
    assert runs is not None
    read = [(bytes(block), crc) for block, crc in blocks_with_crc(runs)]
    assert b"".join(block for block, _ in read) == expected
    assert len(expected) == 4 * (stop - start)
    assert all(zlib.crc32(block) == crc for block, crc in read)
    files.close()


def test_what_does_not_lie_in_a_file_as_it_is_has_no_runs() -> None:
    storage = Storage(OpenFiles(), Path("rank0.pt"), 0, 24)
    transposed = StoredTensor(storage, DType.FLOAT32, (3, 2), (1, 3))
    at_hand = MemoryTensor(DType.FLOAT32, (2,), bytes(8))
    straight = StoredTensor(storage, DType.FLOAT32, (6,), (1,))
    assert file_runs(transposed, 0, 6) is None
    assert file_runs(at_hand, 0, 2) is None
    assert file_runs(ConcatTensor([straight, at_hand], DType.FLOAT32, (8,)), 0, 8) is None
    assert file_runs(ConcatTensor([straight, at_hand], DType.FLOAT32, (8,)), 0, 6) is not None
