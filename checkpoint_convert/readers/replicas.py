"""Whether two tensors hold the same elements, without reading them where their checksums tell."""

from __future__ import annotations

from itertools import zip_longest

from checkpoint_convert.model import TensorSource, numel, size_bytes
from checkpoint_convert.stored_tensor import StoredTensor
from checkpoint_convert.tensor_sources import ConcatTensor


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
