"""Safetensors files of very many tensors, read back at the places they were laid out with (`laid_out`).

The headers and the JSON files beside are compared with what was written, byte by byte, and not taken apart.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from checkpoint_convert import digest
from checkpoint_convert.errors import UnreadableError
from checkpoint_convert.file_bytes import OpenFiles
from checkpoint_convert.items import Items
from checkpoint_convert.model import BLOCK_BYTES, TensorSource
from checkpoint_convert.readback import Finder, beside_safetensors
from checkpoint_convert.reopened import read_groups
from checkpoint_convert.stored_tensor import Storage, StoredTensor, row_major
from checkpoint_convert.values import KeyPath
from checkpoint_convert.writers.safetensors import GROUPS_NAME, SafetensorsLayout


def find_in_safetensors(
    files: OpenFiles, directory: Path, layout: SafetensorsLayout, items: Items
) -> tuple[Finder, Callable[[int], object]]:
    """What finds values and second names by path, and tensors by number.

    Raises:
        UnreadableError: a header, the index or the groups are not what was written.
    """
    header_sizes = dict(layout.header_sizes)
    for name, written in layout.digests.items():  # of another rank's files nothing is known here
        check_bytes(directory / name, written, header_sizes.get(name))
    shared = items.sharing()
    find_value = beside_safetensors(None, None, read_groups(directory / GROUPS_NAME))

    def tensor(number: int) -> TensorSource:
        item = layout.tensors[number]
        name, start = layout.place(number)
        storage = Storage(files, directory / name, start, item.size_bytes)
        return StoredTensor(storage, item.dtype, item.source.shape, row_major(item.source.shape))

    def find(path: KeyPath) -> object:
        return tensor(shared[path]) if path in shared else find_value(path)

    return find, tensor


def check_bytes(path: Path, written: bytes, size_bytes: int | None = None, *, start: int = 0) -> None:
    """Hold so many bytes of a file from `start` on, or all of them, against their digest.

    Raises:
        UnreadableError: they are others.
    """
    running = digest.new()
    with path.open("rb", buffering=0) as file:
        file.seek(start)
        left = path.stat().st_size - start if size_bytes is None else size_bytes
        while left and (block := file.read(min(left, BLOCK_BYTES))):
            running.update(block)
            left -= len(block)
    if running.digest() != written:
        raise UnreadableError(
            f"the output failed its check after writing: {path.name} is not what was written",
            hint="nothing was left behind; this points to a failing disk or file system",
        )
