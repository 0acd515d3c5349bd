"""Digests of tensors: xxh3_128 of the elements' little-endian bytes in row-major order.

Anyone can recompute one: `xxhash.xxh3_128(tensor.contiguous().view(torch.uint8).numpy()).hexdigest()`.
"""

from __future__ import annotations

import xxhash

from checkpoint_convert.model import TensorSource, numel

NAME = "xxh3_128"

new = xxhash.xxh3_128
"""Starts a digest; `update` takes bytes, `digest` gives 16 of them."""


def of_tensor(source: TensorSource) -> bytes:
    """The digest of a tensor's bytes, read block by block."""
    running = new()
    for block in source.blocks(0, numel(source.shape)):
        running.update(block)
    return running.digest()
