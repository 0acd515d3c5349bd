"""Tensor sources in memory, for tests of everything that comes after a reader."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch

from checkpoint_convert.model import BLOCK_BYTES, DType

TORCH_TYPES = {getattr(torch, dtype.torch_name): dtype for dtype in DType if hasattr(torch, dtype.torch_name)}


@dataclass(frozen=True)
class MemorySource:
    """A torch tensor as a `TensorSource`; blocks are small, so that block borders are met."""

    tensor: torch.Tensor
    block_bytes: int = BLOCK_BYTES

    @property
    def dtype(self) -> DType:
        return TORCH_TYPES[self.tensor.dtype]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape)

    def blocks(self, start: int, stop: int) -> Iterator[memoryview]:
        flat = self.tensor.detach().contiguous().reshape(-1)[start:stop]
        data = memoryview(flat.view(torch.uint8).numpy()).cast("B") if flat.numel() else memoryview(b"")
        for offset in range(0, len(data), self.block_bytes):
            yield data[offset : offset + self.block_bytes]


def sources(tensors: Mapping[str, torch.Tensor], block_bytes: int = 64) -> dict[str, MemorySource]:
    """Each tensor as a source."""
    return {name: MemorySource(tensor, block_bytes) for name, tensor in tensors.items()}


def bits(tensor: torch.Tensor) -> bytes:
    """The bytes of a tensor's elements."""
    return b"".join(bytes(block) for block in MemorySource(tensor).blocks(0, tensor.numel()))
