"""`--dtype` is `torch.Tensor.to`, bit for bit, NaN payloads and infinities included."""

import platform

import pytest
import torch

from checkpoint_convert.casting import CASTABLE, cast_between
from checkpoint_convert.model import DType
from tests.checkpoint_convert.memory_source import bits

SPECIAL = (0, -(2**31), 0x7F800000, -0x800000, 0x7F7FFFFF, 1, 0x7FFF, 0x8000, 0x8001, 0x18000, 0x7FC00000)
NAN = (0x7F800001, 0x7FFFFFFF, -1)
FLOATS = [dtype for dtype in DType if dtype in CASTABLE]  # in the same order in every process
PAIRS = [(one, other) for one in FLOATS for other in FLOATS if other is not DType.FLOAT64 and one != other]


def values(dtype: DType) -> torch.Tensor:
    """All 16-bit patterns, or a million 32-bit ones; for float64 also values that float32 cannot hold."""
    if dtype.itemsize == 2:
        return torch.arange(65536).to(torch.int16).view(getattr(torch, dtype.torch_name))
    random = torch.randint(-(2**31), 2**31, (1 << 18,), generator=torch.Generator().manual_seed(0))
    patterns = torch.cat([random, torch.tensor(SPECIAL + NAN)]).to(torch.int32).view(torch.float32)
    if dtype is DType.FLOAT32:
        return patterns
    generator = torch.Generator().manual_seed(1)
    fine = torch.randn(1 << 16, generator=generator, dtype=torch.float64)
    # torch's scalar code, which does the last elements, has another NaN than its vector code.
    return torch.cat([patterns.double(), fine, fine * 1e300, fine * 1e-42])


@pytest.mark.parametrize(("source", "target"), PAIRS, ids=str)
def test_equal_to_torch(source: DType, target: DType) -> None:
    cast = cast_between(source, target)
    assert cast is not None
    tensor = values(source)
    expected = tensor.to(getattr(torch, target.torch_name))
    found = torch.frombuffer(bytearray(cast(memoryview(bits(tensor)))), dtype=expected.dtype)
    nan = expected.isnan()
    assert torch.equal(found.isnan(), nan)
    assert bits(found[~nan]) == bits(expected[~nan])
    if platform.machine() == "x86_64":
        # Which NaN torch writes depends on the processor.
        assert bits(found) == bits(expected)


def test_same_type_is_no_conversion() -> None:
    assert cast_between(DType.BFLOAT16, DType.BFLOAT16) is None


def test_integers_are_refused() -> None:
    with pytest.raises(ValueError, match="int64"):
        cast_between(DType.INT64, DType.FLOAT32)
