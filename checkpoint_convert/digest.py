"""Digests of tensors: xxh3_128 of the elements' little-endian bytes in row-major order.

Anyone can recompute one: `xxhash.xxh3_128(tensor.contiguous().view(torch.uint8).numpy()).hexdigest()`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import xxhash

from checkpoint_convert.file_bytes import OpenFiles, read_blocks
from checkpoint_convert.model import TensorSource, Value, numel
from checkpoint_convert.values import is_tensor

NAME = "xxh3_128"

new = xxhash.xxh3_128
"""Starts a digest; `update` takes bytes, `digest` gives 16 of them."""


def of_file(files: OpenFiles, path: Path) -> bytes:
    """The digest of a whole file."""
    running = new()
    for block in read_blocks(files, path, 0, path.stat().st_size):
        running.update(block)
    return running.digest()


def of_tensor(source: TensorSource) -> bytes:
    """The digest of a tensor's bytes, read block by block."""
    running = new()
    for block in source.blocks(0, numel(source.shape)):
        running.update(block)
    return running.digest()


def of_value(value: Value) -> bytes:
    """The digest of anything else: of its text as Python shows it, a tuple being a list, as in JSON.

    A tensor inside counts with its dtype, shape and digest.
    """
    return new(_text(value).encode(errors="surrogatepass")).digest()


def _text(value: object) -> str:
    if is_tensor(value):
        return f"tensor({value.dtype.torch_name}, {list(value.shape)}, {of_tensor(value).hex()})"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_text(key)}: {_text(item)}' for key, item in value.items())}}}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_text, value))}]"
    return repr(value)
