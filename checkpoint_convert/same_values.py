"""Whether what several ranks have is the same: tensors, plain values, and what is inside of them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest

from checkpoint_convert.model import TensorSource, numel, size_bytes
from checkpoint_convert.optim_state import number_of
from checkpoint_convert.stored_tensor import StoredTensor
from checkpoint_convert.tensor_sources import ConcatTensor
from checkpoint_convert.values import is_tensor


def same_elements(one: TensorSource, two: TensorSource) -> bool:
    """Compare by stored CRC-32 where both tensors are a whole zip record, else byte for byte."""
    if one.dtype != two.dtype or one.shape != two.shape:
        return False
    checks = _whole_checksum(one), _whole_checksum(two)
    if checks[0] is not None and checks[1] is not None:
        return checks[0] == checks[1]
    if isinstance(one, ConcatTensor) and isinstance(two, ConcatTensor) and len(one.parts) == len(two.parts):
        return all(same_elements(a, b) for a, b in zip(one.parts, two.parts, strict=True))
    count = numel(one.shape)
    blocks = zip_longest(one.blocks(0, count), two.blocks(0, count), fillvalue=memoryview(b""))
    return all(a == b for a, b in blocks)


def _whole_checksum(tensor: TensorSource) -> int | None:
    if not isinstance(tensor, StoredTensor) or tensor.offset or tensor.storage.checksum is None:
        return None
    whole = tensor.contiguous and size_bytes(tensor) == tensor.storage.size_bytes
    return tensor.storage.checksum.expected if whole else None


def same_value(one: object, two: object) -> bool:
    """Compare plain values and all that is inside of them; NaN is equal to NaN, and 3 to a tensor of 3."""
    numbers = number_of(one), number_of(two)
    if None not in numbers:
        return numbers[0] == numbers[1] or all(number != number for number in numbers)
    if is_tensor(one) and is_tensor(two):
        return same_elements(one, two)
    if isinstance(one, Mapping) and isinstance(two, Mapping):
        return one.keys() == two.keys() and all(same_value(item, two[key]) for key, item in one.items())
    if isinstance(one, list | tuple) and isinstance(two, list | tuple):
        return len(one) == len(two) and all(map(same_value, one, two))
    return type(one) is type(two) and one == two


def differing_hint(name: str) -> str:
    """What to do where ranks differ in a number of an optimizer's state."""
    if name.endswith("step"):
        return "The files were saved at different moments. Give the files of one save only."
    return (
        "If it is a statistic of each rank's share, as Adafactor's RMS is, no file has the whole one: "
        "convert the model alone (--only model). Else the files are of several saves: give those of one."
    )
