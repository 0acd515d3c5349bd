"""Build zip archives like torch's, and wrong ones, byte by byte."""

from __future__ import annotations

import pickle
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


class Stored:
    """Pickles as torch's persistent id of a storage."""

    def __init__(self, key: str, numel: int, kind: str = "FloatStorage") -> None:
        self.key, self.numel, self.kind = key, numel, kind


class Tensor:
    """Pickles as a call of torch's `_rebuild_tensor_v2`."""

    def __init__(self, storage: Stored, offset: int, size: Sequence[int], stride: Sequence[int]) -> None:
        self.storage, self.offset, self.size, self.stride = storage, offset, tuple(size), tuple(stride)


class _Global:
    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name


def dumps(value: Any) -> bytes:
    """Protocol 2, tensors and storages as torch writes them."""
    return b"\x80\x02" + _put(value) + b"."


def _put(value: Any) -> bytes:
    if isinstance(value, Tensor):
        args = (value.storage, value.offset, value.size, value.stride, False, {})
        return b"ctorch._utils\n_rebuild_tensor_v2\n" + _put(args) + b"R"
    if isinstance(value, Stored):
        key = ("storage", _Global("torch", value.kind), value.key, "cpu", value.numel)
        return _put(key) + b"Q"
    if isinstance(value, _Global):
        return f"c{value.module}\n{value.name}\n".encode()
    if isinstance(value, dict):
        return b"}(" + b"".join(_put(key) + _put(item) for key, item in value.items()) + b"u"
    if isinstance(value, tuple):
        return b"(" + b"".join(map(_put, value)) + b"t"
    if isinstance(value, list):
        return b"](" + b"".join(map(_put, value)) + b"e"
    return pickle.dumps(value, 2)[2:-1]


@dataclass
class Entry:
    """A record, and what to lie about it."""

    name: str
    data: bytes
    method: int = 0
    crc: int | None = None
    header: int | None = None
    size: int | None = None


def archive(entries: Sequence[Entry], *, end: bytes | None = None) -> bytes:
    """A zip file of stored records."""
    body, directory, count = b"", b"", 0
    for entry in entries:
        crc = zlib.crc32(entry.data) if entry.crc is None else entry.crc
        size = len(entry.data) if entry.size is None else entry.size
        name = entry.name.encode()
        at = len(body) if entry.header is None else entry.header
        if entry.header is None:
            body += struct.pack(
                "<4s5H3L2H", b"PK\x03\x04", 20, 0, entry.method, 0, 0, crc, size, size, len(name), 0
            )
            body += name + entry.data
        directory += struct.pack(
            "<4s6H3L5H2L",
            b"PK\x01\x02",
            20,
            20,
            0,
            entry.method,
            0,
            0,
            crc,
            size,
            size,
            len(name),
            0,
            0,
            0,
            0,
            0,
            at,
        )
        directory += name
        count += 1
    tail = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, count, count, len(directory), len(body), 0)
    return body + directory + (tail if end is None else end)


def checkpoint(value: Any, storages: dict[str, bytes], extra: Sequence[Entry] = ()) -> bytes:
    """A torch.save file of a value whose storages are given."""
    entries = [Entry("a/data.pkl", dumps(value)), Entry("a/byteorder", b"little")]
    entries += [Entry(f"a/data/{key}", data) for key, data in storages.items()]
    return archive([*entries, *extra])
