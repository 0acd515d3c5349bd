"""The bytes of a tensor on the CPU, read where they are."""

from __future__ import annotations

import ctypes

from torch import Tensor


def raw_bytes(tensor: Tensor) -> memoryview:
    """The bytes of a contiguous tensor on the CPU, valid for as long as the caller keeps it.

    `Tensor.numpy()` would do the same, but marks the storage as one that cannot be resized from then on, and
    FSDP frees gathered parameters by resizing theirs to nothing (`free_storage` in
    `torch/distributed/fsdp/_fully_shard/_fsdp_param.py`): a job that is only looked at would fail there.

    Raises:
        ValueError: it is not contiguous, or not on the CPU.
    """
    if tensor.device.type != "cpu" or not tensor.is_contiguous():
        raise ValueError(f"bytes of a {tensor.device.type} tensor with strides {tensor.stride()}")
    size = tensor.numel() * tensor.element_size()
    if not size:
        return memoryview(b"")
    return memoryview((ctypes.c_ubyte * size).from_address(tensor.data_ptr())).cast("B")
