"""One item of a `.distcp` file: a small archive that holds a tensor as a rule.

A directory may have hundreds of thousands of them whose pickles are equal byte for byte, so that each kind is
understood once. Whatever is not such a tensor is read as any other file.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

from checkpoint_convert.errors import UnreadableError
from checkpoint_convert.file_bytes import OpenFiles, read_at
from checkpoint_convert.model import DType
from checkpoint_convert.plain_values import plain
from checkpoint_convert.stored_tensor import Storage, StoredTensor
from checkpoint_convert.torch_file import check_apart, main_record, read_torch_file, storage_key, zip_storage
from checkpoint_convert.torch_objects import TypedStorage
from checkpoint_convert.unpickle import unpickle
from checkpoint_convert.zip_records import ZipArchive, ZipRecord

_HEAD_BYTES = 1024
"""Enough for the pickle of a tensor and the headers before its bytes."""

_WHOLE_BYTES = 16 << 10
"""An item of so many bytes is read at once: a call of the system costs more than they do."""

_NOWHERE = OpenFiles()


@dataclass(frozen=True, slots=True)
class _Recipe:
    """How a pickle views its one storage."""

    storage: str
    size_bytes: int
    dtype: DType
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int


def read_item(files: OpenFiles, path: Path, start: int, size_bytes: int) -> object:
    """The value of an item.

    Raises:
        CheckpointError: as `read_torch_file`.
    """
    head = read_at(files, path, start, size_bytes if 0 <= size_bytes <= _WHOLE_BYTES else _HEAD_BYTES)
    if head.startswith(b"PK\x03\x04"):
        archive = ZipArchive(files, path, start, size_bytes, head)
        prefix, pickled = main_record(archive)
        record = _only_storage(archive, prefix)
        if record is not None:
            recipe = _recipe(archive.read(pickled))
            name = record.name.removeprefix(f"{prefix}data/")
            if recipe is not None and (recipe.storage, recipe.size_bytes) == (name, record.size_bytes):
                return _viewed(archive, recipe, record, pickled)
    return read_torch_file(files, path, start, size_bytes).value


def _only_storage(archive: ZipArchive, prefix: str) -> ZipRecord | None:
    """The storage of an archive that has one, and is of this machine's byte order; None otherwise."""
    order = archive.records.get(f"{prefix}byteorder")
    if f"{prefix}constants.pkl" in archive.records or order is None or order.size_bytes != len(b"little"):
        return None
    found = [record for name, record in archive.records.items() if name.startswith(f"{prefix}data/")]
    return found[0] if len(found) == 1 and archive.read(order) == b"little" else None


@functools.lru_cache(maxsize=4096)
def _recipe(pickled: bytes) -> _Recipe | None:
    """What the pickle of one tensor says; None where it says anything else, or is damaged."""
    seen: list[tuple[str, int]] = []

    def load(key: object) -> TypedStorage:
        name, dtype, count, _ = storage_key(key)
        seen.append((name, count * (dtype.itemsize if dtype else 1)))
        return TypedStorage(Storage(_NOWHERE, Path(), 0, seen[-1][1]), dtype)

    try:
        raw, _ = unpickle(pickled, where="", persistent_load=load)
        value = plain(raw, "")
    except UnreadableError:
        return None  # read again where it stands, for a message that says where
    if not isinstance(value, StoredTensor) or len(seen) != 1:
        return None
    return _Recipe(*seen[0], value.dtype, value.shape, value.stride, value.offset)


def _viewed(archive: ZipArchive, recipe: _Recipe, record: ZipRecord, pickled: ZipRecord) -> StoredTensor:
    storage = zip_storage(archive, record.name, "").storage
    check_apart(archive, (storage,), pickled)
    return StoredTensor(storage, recipe.dtype, recipe.shape, recipe.stride, recipe.offset)
