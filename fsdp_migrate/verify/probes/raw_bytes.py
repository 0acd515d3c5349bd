"""The bytes and elements of a tensor on the CPU, read where they are."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_FLOATS: dict[torch.dtype, Any] = {torch.float32: ctypes.c_float, torch.float64: ctypes.c_double}


def raw_bytes(tensor: Tensor) -> memoryview:
    """The bytes of a contiguous tensor on the CPU, valid for as long as the caller keeps it.

    `Tensor.numpy()` would do the same, but marks the storage as one that cannot be resized from then on, and
    FSDP frees gathered parameters by resizing theirs to nothing (`free_storage` in
    `torch/distributed/fsdp/_fully_shard/_fsdp_param.py`): a job that is only looked at would fail there.

    Raises:
        ValueError: it is not contiguous, or not on the CPU.
    """
    _check(tensor)
    size = tensor.numel() * tensor.element_size()
    if not size:
        return memoryview(b"")
    return memoryview((ctypes.c_ubyte * size).from_address(tensor.data_ptr())).cast("B")


def raw_floats(tensor: Tensor) -> NDArray[np.floating]:
    """The elements of a contiguous tensor of float32 or float64 on the CPU, in its shape; see `raw_bytes`.

    Raises:
        ValueError: it is not contiguous, or not on the CPU.
    """
    _check(tensor)
    elements = (_FLOATS[tensor.dtype] * tensor.numel()).from_address(tensor.data_ptr())
    return np.ctypeslib.as_array(elements).reshape(tensor.shape)


def _check(tensor: Tensor) -> None:
    if tensor.device.type != "cpu" or not tensor.is_contiguous():
        raise ValueError(f"bytes of a {tensor.device.type} tensor with strides {tensor.stride()}")
