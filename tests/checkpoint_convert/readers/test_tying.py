"""Which matrices were saved twice, among thousands of one size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from checkpoint_convert.model import DType
from checkpoint_convert.readers.tying import equal_matrices
from checkpoint_convert.tensor_sources import MemoryTensor

READS: Counter[str] = Counter()


@dataclass(frozen=True)
class Counted:
    """A matrix of 6 x 8, which counts how often it is read."""

    name: str
    data: bytes
    dtype: DType = DType.UINT8
    shape: tuple[int, ...] = (6, 8)

    def blocks(self, start: int, stop: int) -> Iterator[memoryview]:
        READS[self.name] += 1
        return MemoryTensor(self.dtype, self.shape, self.data).blocks(start, stop)


def expert(number: int) -> bytes:
    return number.to_bytes(4, "little") * 12


def test_equal_ones_are_found_and_others_are_not_compared_with_each_other() -> None:
    READS.clear()
    many = {f"experts.{number}": Counted(str(number), expert(number)) for number in range(500)}
    twin = Counted("twin", expert(7))
    alike = Counted("alike", expert(7)[:40] + bytes(8))
    zeros = {f"zero.{number}": Counted("zero", bytes(48)) for number in range(3)}
    found = equal_matrices({**many, "alike": alike, "head": twin, **zeros})
    assert found == {"head": "experts.7", "zero.0": "experts.0", "zero.1": "experts.0", "zero.2": "experts.0"}
    assert READS.total() < 3 * (len(many) + 5)


def test_vectors_may_be_equal_by_chance() -> None:
    ones = MemoryTensor(DType.UINT8, (3,), b"\1\1\1")
    assert equal_matrices({"norm.weight": ones, "other.weight": ones}) == {}
