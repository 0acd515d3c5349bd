"""The zip that `torch.save` writes, laid out before its tensor bytes are known.

All entries are stored, the tensor's begins at a multiple of 64 bytes, and the CRC-32 is patched in once the
bytes have gone by. Source: torch `caffe2/serialize/inline_container.cc` (`PyTorchStreamWriter`),
`torch/serialization.py` (`_save`), `torch/_utils.py` (`_rebuild_tensor_v2`, `_rebuild_tensor_v3`).
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from checkpoint_convert.model import DType, TensorSource, Value, numel
from checkpoint_convert.stored_tensor import row_major
from checkpoint_convert.writers.pickle_stream import PickleStream

ALIGNMENT = 64
"""Bytes; torch's own (`kFieldAlignment`)."""

_LOCAL = struct.Struct("<4sHHHHHIIIHH")
_CENTRAL = struct.Struct("<4sHHHHHHIIIHHHHHII")
_CRC = struct.Struct("<I")
_LOCAL_CRC_AT, _CENTRAL_CRC_AT = 14, 16
"""Where the CRC-32 stands in a local header and in an entry of the directory."""
_END = struct.Struct("<4sHHHHIIH")
_END64 = struct.Struct("<4sQHHIIQQQQ")
_LOCATOR64 = struct.Struct("<4sIQI")
_DATE = (0, 0x21)
"""Time and date of every entry: 1980-01-01, so that equal contents are equal bytes."""
_UTF8 = 0x800
_MAX32 = 0xFFFFFFFF
VERSION = b"3\n"
BYTEORDER = b"little"


@dataclass(frozen=True, slots=True)
class Record:
    """One stored entry of a zip.

    Attributes:
        name: with the archive's folder, such as `archive/data/0`.
        header_offset, data_offset: bytes from the start of the archive; data is aligned to `ALIGNMENT`
            where the record was placed so.
        size_bytes: of the data.
    """

    name: str
    header_offset: int
    data_offset: int
    size_bytes: int


def place(name: str, size_bytes: int, offset: int, *, aligned: bool = False) -> Record:
    """The record that starts at `offset`."""
    data = offset + _LOCAL.size + len(name.encode()) + _zip64_extra_bytes(size_bytes)
    if aligned:
        data += 4  # an extra field has a header of four bytes
        data += -data % ALIGNMENT
    return Record(name, offset, data, size_bytes)


def _zip64_extra_bytes(size_bytes: int) -> int:
    return 20 if size_bytes >= _MAX32 else 0


def local_header(record: Record, crc: int) -> bytes:
    """The bytes before a record's data, padding included."""
    name = record.name.encode()
    big = record.size_bytes >= _MAX32
    size = _MAX32 if big else record.size_bytes
    extra = struct.pack("<HHQQ", 1, 16, record.size_bytes, record.size_bytes) if big else b""
    padding = record.data_offset - record.header_offset - _LOCAL.size - len(name) - len(extra)
    if padding:
        extra += b"FB" + struct.pack("<H", padding - 4) + b"Z" * (padding - 4)  # torch's own padding field
    fixed = _LOCAL.pack(
        b"PK\x03\x04", 45 if big else 20, _UTF8, 0, *_DATE, crc, size, size, len(name), len(extra)
    )
    return fixed + name + extra


def local_crc(header: bytes) -> int:
    """The CRC-32 that a local header says."""
    crc: int = _CRC.unpack_from(header, _LOCAL_CRC_AT)[0]
    return crc


def _central_entry(record: Record, crc: int) -> bytes:
    name = record.name.encode()
    wide: list[int] = []
    size, offset = record.size_bytes, record.header_offset
    if size >= _MAX32:
        wide += [size, size]
        size = _MAX32
    if offset >= _MAX32:
        wide.append(offset)
        offset = _MAX32
    extra = struct.pack(f"<HH{len(wide)}Q", 1, 8 * len(wide), *wide) if wide else b""
    version = 45 if wide else 20
    return (
        _CENTRAL.pack(
            b"PK\x01\x02",
            version,
            version,
            _UTF8,
            0,
            *_DATE,
            crc,
            size,
            size,
            len(name),
            len(extra),
            0,
            0,
            0,
            0,
            offset,
        )
        + name
        + extra
    )


def central_entry_bytes(record: Record) -> int:
    """Length of a record's entry in the directory; it does not depend on the CRC."""
    wide = 2 * (record.size_bytes >= _MAX32) + (record.header_offset >= _MAX32)
    return _CENTRAL.size + len(record.name.encode()) + (4 + 8 * wide if wide else 0)


def central_end(count: int, size: int, offset: int) -> bytes:
    """What follows the directory's entries: `count` of them, `size` bytes, which begin at `offset`."""
    tail = b""
    if count >= 0xFFFF or offset >= _MAX32 or size >= _MAX32:
        tail = _END64.pack(b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, size, offset)
        tail += _LOCATOR64.pack(b"PK\x06\x07", 0, offset + size, 1)
    short = min(count, 0xFFFF)
    return tail + _END.pack(b"PK\x05\x06", 0, 0, short, short, min(size, _MAX32), min(offset, _MAX32), 0)


def central_directory(entries: Iterable[tuple[Record, int]], offset: int) -> Iterator[bytes]:
    """What ends the archive, in pieces: records and their CRC-32; `offset` is where it starts."""
    count = size = 0
    for record, crc in entries:
        entry = _central_entry(record, crc)
        count, size = count + 1, size + len(entry)
        yield entry
    yield central_end(count, size, offset)


def push_tensor(
    stream: PickleStream, dtype: DType, shape: Sequence[int], key: str, *, is_shared: bool = False
) -> None:
    """Push a contiguous CPU tensor whose storage is the record `data/<key>`, as `torch.save` does.

    Args:
        is_shared: it is pushed more than once, so that its key is worth remembering.
    """
    typed = dtype.storage_class != ""
    stream.name("torch._utils", "_rebuild_tensor_v2" if typed else "_rebuild_tensor_v3")
    stream.raw(b"((")
    stream.text("storage")
    if typed:
        stream.name("torch", dtype.storage_class)
    else:
        stream.name("torch.storage", "UntypedStorage")
    if is_shared:
        stream.text(key)
    elif not stream.recall(key):
        stream.new_text(key)
    stream.text("cpu")
    stream.integer(numel(shape) * (1 if typed else dtype.itemsize))
    stream.raw(b"tQ")  # tuple, persistent id
    stream.integer(0)
    stream.integers(shape)
    stream.integers(row_major(shape))
    stream.raw(b"\x89")  # requires_grad: False
    stream.name("collections", "OrderedDict")  # backward hooks: none
    stream.raw(b")R")
    if not typed:
        stream.name("torch", dtype.torch_name)
    stream.raw(b"tR")


@dataclass(frozen=True, slots=True)
class ItemFrame:
    """Everything of a one-tensor archive but the tensor's bytes.

    Attributes:
        records: `data.pkl`, `byteorder`, `data/0`, `version`.
        size_bytes: of the whole archive.
        around_head_crc, around_tail_crc: what stands before the tensor's bytes and after them, without the
            CRC-32 that stands in it.
    """

    records: tuple[Record, ...]
    size_bytes: int
    around_head_crc: tuple[bytes, bytes]
    around_tail_crc: tuple[bytes, bytes]

    @property
    def data_offset(self) -> int:
        """Where the tensor's bytes start; a multiple of `ALIGNMENT`."""
        return self.records[2].data_offset

    def head(self, crc: int) -> bytes:
        """The bytes before the tensor's, given their CRC-32."""
        return _CRC.pack(crc).join(self.around_head_crc)

    def tail(self, crc: int) -> bytes:
        """The bytes after the tensor's."""
        return _CRC.pack(crc).join(self.around_tail_crc)


@functools.lru_cache(maxsize=256)
def tensor_frame(dtype: DType, shape: tuple[int, ...]) -> ItemFrame:
    """Lay out `torch.save(tensor)` for a contiguous tensor of that dtype and shape."""
    out = bytearray()
    stream = PickleStream(out.extend)
    push_tensor(stream, dtype, shape, "0")
    stream.stop()
    first = place("archive/data.pkl", len(out), 0)
    order = place("archive/byteorder", len(BYTEORDER), first.data_offset + first.size_bytes)
    size = numel(shape) * dtype.itemsize
    tensor = place("archive/data/0", size, order.data_offset + order.size_bytes, aligned=True)
    version = place("archive/version", len(VERSION), tensor.data_offset + size)
    records = (first, order, tensor, version)
    pickled = bytes(out)
    crcs = (crc32(pickled), crc32(BYTEORDER), 0, crc32(VERSION))
    head = local_header(first, crcs[0]) + pickled + local_header(order, crcs[1]) + BYTEORDER
    tensor_header = local_header(tensor, 0)
    tail = local_header(version, crcs[3]) + VERSION
    before = sum(len(_central_entry(record, 0)) for record in records[:2])
    crc_at = len(tail) + before + _CENTRAL_CRC_AT
    start = version.data_offset + version.size_bytes
    directory = b"".join(central_directory(zip(records, crcs, strict=True), start))
    tail += directory
    return ItemFrame(
        records,
        start + len(directory),
        (head + tensor_header[:_LOCAL_CRC_AT], tensor_header[_LOCAL_CRC_AT + _CRC.size :]),
        (tail[:crc_at], tail[crc_at + _CRC.size :]),
    )


def object_archive(value: Value) -> bytes:
    """`torch.save(value)` of plain data; tensors inside are read into memory, so they have to be small."""
    tensors: list[TensorSource] = []

    def on_tensor(stream: PickleStream, tensor: TensorSource) -> None:
        push_tensor(stream, tensor.dtype, tensor.shape, str(len(tensors)))
        tensors.append(tensor)

    pickled = bytearray()
    stream = PickleStream(pickled.extend, on_tensor)
    stream.value(value)
    stream.stop()
    contents: list[tuple[str, bytes, bool]] = [
        ("archive/data.pkl", bytes(pickled), False),
        ("archive/byteorder", BYTEORDER, False),
    ]
    for number, tensor in enumerate(tensors):
        data = b"".join(bytes(block) for block in tensor.blocks(0, numel(tensor.shape)))
        contents.append((f"archive/data/{number}", data, True))
    contents.append(("archive/version", VERSION, False))
    return archive(contents)


def archive(contents: Sequence[tuple[str, bytes, bool]]) -> bytes:
    """A whole archive of (name, data, aligned) entries."""
    out = bytearray()
    records: list[Record] = []
    for name, data, aligned in contents:
        record = place(name, len(data), len(out), aligned=aligned)
        records.append(record)
        out += local_header(record, crc32(data))
        out += data
    entries = [(record, crc32(data)) for record, (_, data, _) in zip(records, contents, strict=True)]
    return bytes(out) + b"".join(central_directory(entries, len(out)))


def crc32(data: bytes | bytearray) -> int:
    """The zip's checksum; isal computes it at memory speed."""
    from isal import isal_zlib

    crc: int = isal_zlib.crc32(data)
    return crc
