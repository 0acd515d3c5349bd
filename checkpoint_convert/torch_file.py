"""One file that `torch.save` wrote, read without running it: zip archive, legacy stream, or bare pickle.

Source: `torch/serialization.py` (`_save`, `_legacy_save`). Tensors stay in the file.
"""

from __future__ import annotations

import codecs
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path

from checkpoint_convert.errors import UnreadableError, UnsupportedError
from checkpoint_convert.file_bytes import OpenFiles, read_at
from checkpoint_convert.model import DType, Opaque
from checkpoint_convert.plain_values import plain
from checkpoint_convert.stored_tensor import Storage
from checkpoint_convert.torch_objects import TypedStorage, storage_dtype
from checkpoint_convert.unpickle import unpickle
from checkpoint_convert.zip_records import ZipArchive, ZipRecord

LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
_MAX_PICKLE_BYTES = 1 << 30
_HEAD_BYTES = 4096
"""What is looked at to tell text."""
BY_PICKLE = "pickle.dump"
"""In place of what `pickle.dump` wrote with tensors in it: their elements are in the pickle itself."""
_STORAGE_IN_PICKLE = b"_load_from_bytes"


@dataclass(frozen=True, slots=True, eq=False)
class TorchFile:
    """A file's contents, tensors left in place.

    Attributes:
        value: see `plain_values.plain`.
        storages: every storage the file's tensors lie in.
    """

    path: Path
    value: object
    storages: tuple[Storage, ...]


def read_torch_file(files: OpenFiles, path: Path, start: int = 0, size_bytes: int | None = None) -> TorchFile:
    """Read what one `torch.save` wrote.

    Args:
        start, size_bytes: the window of the file that holds it, an archive then; the whole file by default.

    Raises:
        UnreadableError: damaged, truncated, hostile, or no such file at all; names file and byte.
        UnsupportedError: written on a big-endian machine, or a TorchScript archive.
    """
    is_item = size_bytes is not None
    if size_bytes is None:
        size_bytes = file_size(path) - start
    magic = read_at(files, path, start, min(size_bytes, 4))
    if magic == b"PK\x03\x04":
        return _read_zip(files, path, start, size_bytes)
    if not magic:
        raise UnreadableError(f"{path}: is empty", hint="Give the file as it was written.")
    if is_item:  # torch writes items of a `.distcp` file as archives only
        raise UnreadableError(
            f"{path}, item at byte {start}: is no archive that torch.save wrote",
            hint="The directory is damaged, or its files are of different saves.",
        )
    try:
        return _read_stream(files, path)
    except UnreadableError:
        # Pickles of protocol 0 are text as well, so only what cannot be read is called that.
        if is_text(read_at(files, path, start, min(size_bytes, _HEAD_BYTES))):
            raise UnreadableError(
                f"{path}: is a text file, no checkpoint",
                hint="Give a file that torch.save or safetensors wrote.",
            ) from None
        raise


def is_text(head: bytes) -> bool:
    """Whether a file that begins so is text; its last character may be cut."""
    try:
        shown = codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return all(char.isprintable() or char in "\t\n\r\f\ufeff" for char in shown)


def file_size(path: Path) -> int:
    """Bytes of a file; UnreadableError where there is none."""
    try:
        return path.stat().st_size
    except OSError as error:
        raise UnreadableError(
            f"{path}: {error.strerror}", hint="Check the path and its permissions."
        ) from None


def _read_zip(files: OpenFiles, path: Path, start: int, size_bytes: int) -> TorchFile:
    archive = ZipArchive(files, path, start, size_bytes)
    prefix, pickled = main_record(archive)
    if f"{prefix}constants.pkl" in archive.records:
        raise UnsupportedError(
            f"{path}: is a TorchScript archive, which holds a program",
            hint="Load it in torch and save its state_dict().",
        )
    order = archive.records.get(f"{prefix}byteorder")
    if order is not None and order.size_bytes < 16 and archive.read(order) != b"little":
        raise UnsupportedError(
            f"{path}: was written on a big-endian machine",
            hint="Load and save it again on a little-endian one.",
        )
    if pickled.size_bytes > _MAX_PICKLE_BYTES:
        raise archive.damaged(f"its data.pkl takes {pickled.size_bytes} bytes, more than 1 GiB")
    storages: dict[str, TypedStorage] = {}

    def load(key: object) -> TypedStorage:
        name, dtype, count, location = storage_key(key)
        if name not in storages:
            storages[name] = zip_storage(archive, f"{prefix}data/{name}", location)
            del archive.records[f"{prefix}data/{name}"]  # as large as what it became
        found = storages[name].storage
        if dtype is not None and count * dtype.itemsize != found.size_bytes:
            raise ValueError(
                f"storage {name} should take {count * dtype.itemsize} bytes, not {found.size_bytes}"
            )
        return TypedStorage(found, dtype)

    where = f"{path}, record data.pkl"
    raw, _ = unpickle(archive.read(pickled), where=where, persistent_load=load)
    found = tuple(typed.storage for typed in storages.values())
    check_apart(archive, found, pickled)
    storages.clear()
    return TorchFile(path, plain(raw, where), found)


def main_record(archive: ZipArchive) -> tuple[str, ZipRecord]:
    """The archive's folder, and its `data.pkl`."""
    for name, record in archive.records.items():
        if name.count("/") == 1 and name.endswith("/data.pkl"):
            return name[: -len("data.pkl")], record
    raise UnreadableError(
        f"{archive.path}: is a zip archive, but no checkpoint: it has no data.pkl",
        hint="Give the file that torch.save wrote.",
    )


def storage_key(key: object) -> tuple[str, DType | None, int, str]:
    """Name, dtype (None: untyped), elements and location out of torch's persistent id."""
    if not isinstance(key, tuple) or len(key) < 5 or key[0] != "storage":
        raise ValueError("a persistent id is not one of torch's storages")
    _, kind, name, location, count, *_ = key
    if not isinstance(name, str) or type(count) is not int or count < 0:
        raise ValueError("a storage has no name or no size")
    return name, storage_dtype(kind), count, str(location)


def zip_storage(archive: ZipArchive, name: str, location: str) -> TypedStorage:
    """A record as a storage."""
    record = archive.records.get(name)
    if record is None:
        raise archive.damaged(f"record {name} is missing")
    at = archive.data_position(record)
    checksum = archive.checksum(record, at)
    storage = Storage(archive.files, archive.path, at, record.size_bytes, checksum, location)
    return TypedStorage(storage, None)


def check_apart(archive: ZipArchive, storages: tuple[Storage, ...], pickled: ZipRecord) -> None:
    """No two records may share bytes: a forged archive could say everything twice."""
    spans = [(storage.position, storage.size_bytes) for storage in storages if storage.size_bytes]
    spans.append((archive.data_position(pickled), pickled.size_bytes))
    end = 0
    for position, size_bytes in sorted(spans):
        if position < end:
            raise archive.damaged(f"two records overlap at byte {position}")
        end = position + size_bytes


def _read_stream(files: OpenFiles, path: Path) -> TorchFile:
    with path.open("rb") as handle, mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as data:
        first, at = unpickle(data, where=str(path))
        if first != LEGACY_MAGIC:
            if at != len(data):
                raise UnreadableError(
                    f"{path}: no checkpoint: after a pickle of {at} bytes there are {len(data) - at} more",
                    hint="Give a file that torch.save wrote.",
                )
            by_pickle = data.find(_STORAGE_IN_PICKLE) >= 0
            return TorchFile(path, Opaque(BY_PICKLE) if by_pickle else plain(first, str(path)), ())
        _, at = unpickle(data, where=str(path), start=at)
        info, at = unpickle(data, where=str(path), start=at)
        if not isinstance(info, dict) or info.get("little_endian") is not True:
            raise UnsupportedError(
                f"{path}: was written on a big-endian machine",
                hint="Load and save it again on a little-endian one.",
            )
        return _read_legacy(files, path, data, at)


def _read_legacy(files: OpenFiles, path: Path, data: mmap.mmap, at: int) -> TorchFile:
    where = str(path)
    storages: dict[str, tuple[Storage, int]] = {}

    def load(key: object) -> object:
        if isinstance(key, tuple) and key[:1] == ("module",) and len(key) > 1:
            return key[1]  # a module's class, with its source text beside it; only recorded, as any class
        name, dtype, count, location = storage_key(key)
        if not isinstance(key, tuple) or (len(key) > 5 and key[5] is not None):
            raise ValueError("storage views of torch 0.4 and older are not read")
        item = dtype.itemsize if dtype is not None else 1
        known = storages.setdefault(name, (Storage(files, path, -1, count * item, None, location), item))
        if known[0].size_bytes != count * item:
            raise ValueError(f"storage {name} is given two sizes")
        return TypedStorage(known[0], dtype)

    raw, at = unpickle(data, where=where, start=at, persistent_load=load)
    names, at = unpickle(data, where=where, start=at)
    if not isinstance(names, list) or len(names) != len(set(map(str, names))):
        raise UnreadableError(
            f"{path}: its list of storages is damaged", hint="Take another copy of the file."
        )
    for name in names:
        at = _place_legacy(path, data, at, storages.get(name) if isinstance(name, str) else None)
    if any(storage.position < 0 for storage, _ in storages.values()):
        raise UnreadableError(f"{path}: a storage is missing", hint="Take another copy of the file.")
    return TorchFile(path, plain(raw, where), tuple(storage for storage, _ in storages.values()))


def _place_legacy(path: Path, data: mmap.mmap, at: int, known: tuple[Storage, int] | None) -> int:
    """Give a storage its position: 8 bytes of element count, then the data; the position after it."""
    if known is None or at + 8 > len(data):
        raise UnreadableError(
            f"{path}: ends at byte {len(data)}, where a storage should follow byte {at}",
            hint="The file was cut short, perhaps while it was written or copied.",
        )
    storage, item = known
    (count,) = struct.unpack_from("<q", data, at)
    if count * item != storage.size_bytes or at + 8 + storage.size_bytes > len(data):
        raise UnreadableError(
            f"{path}: a storage of {storage.size_bytes} bytes at byte {at + 8} "
            f"does not fit the file's {len(data)} bytes",
            hint="The file was cut short or damaged.",
        )
    storage.position = at + 8
    return at + 8 + storage.size_bytes
