"""The records of a zip archive as torch writes it: stored, never compressed, read by position.

Source: the ZIP file format (local header, central directory, their 64-bit forms) and torch's
`caffe2/serialize/inline_container.cc`.
The archive may be a window of a larger file, as the items of a `.distcp` file are.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from checkpoint_convert.checksum import Checksum
from checkpoint_convert.errors import UnreadableError
from checkpoint_convert.file_bytes import OpenFiles, announce, read_at

_END = struct.Struct("<4s4H2LH")
_END64_LOCATOR = struct.Struct("<4sLQL")
_END64 = struct.Struct("<4sQ2H2L4Q")
_ENTRY = struct.Struct("<4s6H3L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")
_BIG = 0xFFFFFFFF
_MAX_DIRECTORY_BYTES = 1 << 30
_TAIL_BYTES = 1024
"""Enough for the whole directory of a `.distcp` item."""
_FEW = 8
"""Records of a `.distcp` item, which was read as a whole before."""


@dataclass(frozen=True, slots=True)
class ZipRecord:
    """One stored record.

    Attributes:
        name: its name inside the archive.
        header: position of its local header in the file.
        size_bytes: length of its data.
        crc: CRC-32 of its data, 0 where the writer left it out.
        compressed: not stored as it is; no record torch.save writes is.
    """

    name: str
    header: int
    size_bytes: int
    crc: int
    compressed: bool


class ZipArchive:
    """The central directory of one archive, checked, and the way to each record's data.

    Args:
        files: open handles to read with.
        path, start, size_bytes: the window of the file that holds the archive.
        kept: its first bytes, as far as they were read already.

    Raises:
        UnreadableError: no archive, cut short, compressed, or with a name twice.
    """

    def __init__(self, files: OpenFiles, path: Path, start: int, size_bytes: int, kept: bytes = b"") -> None:
        self.files, self.path, self.start, self.size_bytes = files, path, start, size_bytes
        self._directory_at = 0
        self._windows: list[tuple[int, bytes]] = [(start, kept)]
        self.records: dict[str, ZipRecord] = {}
        for record in self._read_directory():
            if record.name in self.records:
                raise self.damaged(f"two records are named {record.name}")
            self.records[record.name] = record
        if len(self.records) > _FEW:
            announce(files, path, [record.header for record in self.records.values()], _LOCAL.size)

    def damaged(self, reason: str) -> UnreadableError:
        """The error of an archive that is not what it should be."""
        at = f", item at byte {self.start}" if self.start else ""
        return UnreadableError(
            f"{self.path}{at}: not a whole torch.save archive: {reason}",
            hint="The file is damaged or cut short. Compare its size with the original's.",
        )

    def read(self, record: ZipRecord) -> bytes:
        """A record's data, its CRC verified where there is one."""
        at = self.data_position(record)
        data = self._read(at, record.size_bytes)
        checksum = self.checksum(record, at)
        if checksum is not None:
            checksum.saw(at, memoryview(data))
        return data

    def checksum(self, record: ZipRecord, at: int) -> Checksum | None:
        """What verifies the record whose data begins at `at`; None where the writer stored no CRC."""
        if not record.crc or not record.size_bytes:
            return None
        return Checksum(self.path, record.name, at, record.size_bytes, record.crc)

    def data_position(self, record: ZipRecord) -> int:
        """Where a record's data begins in the file, by its local header, within the archive."""
        header = self._read(record.header, _LOCAL.size)
        magic, _, _, method, *_, name_bytes, extra_bytes = _LOCAL.unpack(header)
        if magic != b"PK\x03\x04":
            raise self.damaged(f"no local header of {record.name} at byte {record.header}")
        if method != 0 or record.compressed:
            raise self.damaged(f"record {record.name} is compressed, which torch.save never does")
        at: int = record.header + _LOCAL.size + name_bytes + extra_bytes
        if at + record.size_bytes > self._directory_at:
            raise self.damaged(f"record {record.name} reaches past the archive's directory")
        return at

    def _read(self, position: int, count: int) -> bytes:
        if position < self.start or count < 0 or position + count > self.start + self.size_bytes:
            raise self.damaged(f"it points to byte {position}, outside itself")
        for at, data in self._windows:
            if at <= position and position + count <= at + len(data):
                return data[position - at : position - at + count]
        return read_at(self.files, self.path, position, count)

    def keep(self, position: int, count: int) -> bytes:
        """Read a stretch that holds much of what will be asked for, and answer from it."""
        data = self._read(position, count)
        self._windows.append((position, data))
        return data

    def _read_directory(self) -> Iterator[ZipRecord]:
        count, size, offset = self._find_directory()
        if size > _MAX_DIRECTORY_BYTES:
            raise self.damaged("its directory is larger than 1 GiB")
        self._directory_at = self.start + offset
        data = self._read(self._directory_at, size)
        at = 0
        for _ in range(count):
            if at + _ENTRY.size > size:
                raise self.damaged(f"its directory ends before entry {len(self.records)} of {count}")
            record, at = self._read_entry(data, at)
            yield record

    def _read_entry(self, data: bytes, at: int) -> tuple[ZipRecord, int]:
        (
            magic,
            _,
            _,
            flags,
            method,
            _,
            _,
            crc,
            packed,
            size,
            name_bytes,
            extra_bytes,
            comment_bytes,
            *_,
            header,
        ) = _ENTRY.unpack_from(data, at)
        if magic != b"PK\x01\x02":
            raise self.damaged(f"no directory entry at byte {self._directory_at + at}")
        at += _ENTRY.size
        name = data[at : at + name_bytes].decode("utf-8", "replace")
        extra = data[at + name_bytes : at + name_bytes + extra_bytes]
        size, packed, header = _wide(extra, size, packed, header)
        compressed = method != 0 or packed != size
        if flags & 1:
            raise self.damaged(f"record {name} is encrypted")
        return ZipRecord(
            name, self.start + header, size, crc, compressed
        ), at + name_bytes + extra_bytes + comment_bytes

    def _find_directory(self) -> tuple[int, int, int]:
        """Number of entries, size in bytes and offset of the central directory."""
        for most in (_TAIL_BYTES, _END.size + 0xFFFF):  # torch writes no comment after the directory
            tail_bytes = min(self.size_bytes, most)
            tail = self.keep(self.start + self.size_bytes - tail_bytes, tail_bytes)
            found = tail.rfind(b"PK\x05\x06")
            if found >= _END64_LOCATOR.size:
                break
        if found < 0 or found + _END.size > tail_bytes:
            end = self.start + self.size_bytes
            raise self.damaged(f"the directory that should end it at byte {end} is missing")
        _, _, _, _, count, size, offset, _ = _END.unpack_from(tail, found)
        if count == 0xFFFF or size == _BIG or offset == _BIG or found >= _END64_LOCATOR.size:
            located = tail[max(0, found - _END64_LOCATOR.size) : found]
            if located.startswith(b"PK\x06\x07") and len(located) == _END64_LOCATOR.size:
                _, _, where, _ = _END64_LOCATOR.unpack(located)
                end64 = self._read(self.start + where, _END64.size)
                if not end64.startswith(b"PK\x06\x06"):
                    raise self.damaged("its 64-bit directory is not where it should be")
                *_, count, size, offset = _END64.unpack(end64)
        return count, size, offset


def _wide(extra: bytes, size: int, packed: int, header: int) -> tuple[int, int, int]:
    """Sizes and offset, with the 64-bit values of the extra field where the 32-bit ones are full."""
    at = 0
    while at + 4 <= len(extra):
        tag, length = struct.unpack_from("<HH", extra, at)
        if tag == 1:
            values = list(struct.unpack_from(f"<{min(length, len(extra) - at - 4) // 8}Q", extra, at + 4))
            if size == _BIG and values:
                size = values.pop(0)
            if packed == _BIG and values:
                packed = values.pop(0)
            if header == _BIG and values:
                header = values.pop(0)
        at += 4 + length
    return size, packed, header
