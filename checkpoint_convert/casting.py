"""Floating point conversion of bytes, equal to `torch.Tensor.to` bit for bit. numpy is imported on use.

Source: torch `c10/util/BFloat16.h` (`round_to_nearest_even`), `aten/src/ATen/cpu/vec` (a NaN becomes 0xFFFF;
torch's scalar code, which also does the last few elements from float64, writes 0x7FC0), `c10/util/Half.h`.
float64 goes through float32, as torch's own conversions do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from checkpoint_convert.model import DType

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

CASTABLE = frozenset({DType.FLOAT64, DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16})
"""Element types that are converted, and the ones they can become but for float64."""

Cast = Callable[[memoryview], memoryview]
"""Bytes of whole elements in, bytes of as many elements out."""


def cast_between(source: DType, target: DType) -> Cast | None:
    """A conversion of blocks; None where the bytes stay as they are."""
    if source is target:
        return None
    if source not in CASTABLE or target not in CASTABLE:
        raise ValueError(f"no conversion from {source.torch_name} to {target.torch_name}")
    import numpy as np

    def cast(block: memoryview) -> memoryview:
        with np.errstate(all="ignore"):  # overflow to infinity is what the conversion means
            if target is DType.FLOAT64:
                return _bytes_of(_widen(block, source).astype("<f8"))
            values = _widen(block, source)
            if target is DType.FLOAT32:
                return _bytes_of(values)
            if target is DType.FLOAT16:
                return _bytes_of(_narrow_to_float16(values))
            return _bytes_of(_round_to_bfloat16(values, 0x7FC0 if source is DType.FLOAT16 else 0xFFFF))

    return cast


def _bytes_of(values: npt.NDArray[Any]) -> memoryview:
    return values.data.cast("B")


def _widen(block: memoryview, dtype: DType) -> npt.NDArray[np.float32]:
    import numpy as np

    if dtype is DType.BFLOAT16:
        shifted: npt.NDArray[np.float32] = (np.frombuffer(block, "<u2").astype("<u4") << np.uint32(16)).view(
            "<f4"
        )
        return shifted
    if dtype is DType.FLOAT16:
        values = np.frombuffer(block, "<f2").astype("<f4")
        # numpy keeps a signalling NaN; the processor's conversion, which torch uses, makes it a quiet one.
        values.view("<u4")[np.isnan(values)] |= np.uint32(0x00400000)
        return values
    wide: npt.NDArray[Any] = np.frombuffer(block, "<f8" if dtype is DType.FLOAT64 else "<f4")
    narrow: npt.NDArray[np.float32] = wide.astype("<f4", copy=False)
    return narrow


def _narrow_to_float16(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    import numpy as np

    short = values.astype("<f2").view("<u2")
    nan = np.isnan(values)
    bits = values.view("<u4")[nan]
    short[nan] = (
        ((bits >> np.uint32(16)) & np.uint32(0x8000))
        | np.uint32(0x7E00)
        | ((bits >> np.uint32(13)) & np.uint32(0x3FF))
    )
    return short


def _round_to_bfloat16(values: npt.NDArray[np.float32], nan: int) -> npt.NDArray[np.uint16]:
    import numpy as np

    bits = values.view("<u4")
    rounded = (bits + (np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1)))) >> np.uint32(16)
    short: npt.NDArray[np.uint16] = rounded.astype("<u2")
    short[np.isnan(values)] = nan
    return short
