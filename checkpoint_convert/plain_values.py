"""From what the pickle machine recorded to plain values: containers, scalars, tensors on disk, `Opaque`.

Shared containers are converted once; one that contains itself, nests too deeply, or unfolds (through
sharing) into more than could be walked is refused, so that everything downstream may walk the result as a
tree.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from checkpoint_convert.errors import UnreadableError
from checkpoint_convert.model import DType, Opaque
from checkpoint_convert.symbols import Record, Symbol
from checkpoint_convert.tensor_sources import MemoryTensor
from checkpoint_convert.torch_objects import dtensor_from, numbers, sharded_tensor_from, tensor_from

_DEPTH = 100
_TREE_NODES = 100_000_000
_SCALARS = frozenset({int, float, str, bool, bytes, type(None), complex})
_NUMPY = frozenset({"numpy.core.multiarray", "numpy._core.multiarray"})
_NUMPY_DTYPES = {
    "f8": DType.FLOAT64,
    "f4": DType.FLOAT32,
    "f2": DType.FLOAT16,
    "i8": DType.INT64,
    "i4": DType.INT32,
    "i2": DType.INT16,
    "i1": DType.INT8,
    "u8": DType.UINT64,
    "u4": DType.UINT32,
    "u2": DType.UINT16,
    "u1": DType.UINT8,
    "b1": DType.BOOL,
    "c8": DType.COMPLEX64,
    "c16": DType.COMPLEX128,
}
_STRUCT = {"f8": "d", "f4": "f", "f2": "e", "i8": "q", "i4": "i", "i2": "h", "i1": "b"}
_STRUCT |= {"u8": "Q", "u4": "I", "u2": "H", "u1": "B", "b1": "?"}


def plain(raw: object, where: str) -> object:
    """Convert an unpickled value.

    Returns:
        Scalars, lists, tuples and dicts; `StoredTensor`, `MemoryTensor`, `ShardedTensorOnRank`,
        `DTensorOnRank`; `Opaque` for every object of another class.

    Raises:
        UnreadableError: it cannot be walked, or a tensor lies outside its storage.
    """
    converter = _Converter(where)
    try:
        return converter.convert(raw, 0)
    except (TypeError, IndexError, ValueError, struct.error, OverflowError) as error:
        raise UnreadableError(
            f"{where}: an object is not built as its class builds it: {error}",
            hint="The file is damaged or forged.",
        ) from None


class _Converter:
    """One conversion: what each raw container became, and how large it unfolds."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.done: dict[int, object] = {}
        self.nodes: dict[int, int] = {}
        self.open: set[int] = set()
        self.made_keys = 0

    def convert(self, raw: object, depth: int) -> object:
        """The plain form of one value, at a nesting depth."""
        if type(raw) in _SCALARS:
            return raw
        key = id(raw)
        if key in self.done:
            return self.done[key]
        if key in self.open:
            raise self._refused("a container contains itself")
        if depth > _DEPTH:
            raise self._refused(f"containers nest deeper than {_DEPTH} levels")
        self.open.add(key)
        result = self._build(raw, depth)
        self.open.discard(key)
        self.done[key] = result
        return result

    def _refused(self, reason: str) -> UnreadableError:
        return UnreadableError(
            f"{self.where}: {reason}", hint="No checkpoint does that: the file is damaged or forged."
        )

    def _build(self, raw: object, depth: int) -> object:
        if isinstance(raw, list):
            return self._sequence(raw, raw, depth)
        if isinstance(raw, tuple):
            return tuple(self._sequence(raw, list(raw), depth))
        if isinstance(raw, dict):
            return self._mapping(raw, raw, depth)
        if isinstance(raw, Record):
            return self._record(raw, depth)
        if isinstance(raw, Symbol):
            return Opaque(raw.dotted)
        return Opaque(f"builtins.{type(raw).__name__}")

    def _sequence(self, raw: object, items: list[object], depth: int) -> list[object]:
        self._count(raw, items)
        if _SCALARS.issuperset(map(type, items)):
            return items
        converted = [self.convert(item, depth + 1) for item in items]
        self._count(raw, items)
        return converted

    def _mapping(self, raw: object, pairs: dict[object, object], depth: int) -> dict[object, object]:
        converted = {self._key(key): self.convert(value, depth + 1) for key, value in pairs.items()}
        self._count(raw, pairs.values())
        return converted

    def _key(self, key: object) -> object:
        if isinstance(key, Record | Symbol):
            self.made_keys += 1
            name = key.class_name if isinstance(key, Record) else key.dotted
            return (Opaque(name), self.made_keys)
        return key

    def _count(self, raw: object, children: object) -> None:
        nodes = self.nodes
        total = 1
        for child in children if isinstance(children, list) else list(children):  # type: ignore[call-overload]
            total += nodes.get(id(child), 1)
        if total > _TREE_NODES:
            raise self._refused("containers share one another so often that they unfold without end")
        nodes[id(raw)] = total

    def _record(self, record: Record, depth: int) -> object:
        for rebuild in (tensor_from, sharded_tensor_from, dtensor_from):
            value = rebuild(record, self.where)
            if value is not None:
                return value
        name = record.class_name
        if name == "torch.Size":
            return numbers(record)
        if name == "_codecs.encode":
            return _encoded(record)
        if name in ("builtins.complex", "__builtin__.complex"):
            return complex(*(part for part in record.args if isinstance(part, int | float)))
        if name in ("builtins.bytearray", "__builtin__.bytearray", "builtins.bytes", "__builtin__.bytes"):
            return self._bytes(record)
        if name.rpartition(".")[0] in _NUMPY:
            return self._numpy(record)
        if record.pairs is not None:  # a subclass of dict: its class is lost, its contents are not
            return self._mapping(record, record.pairs, depth)
        attributes = record.attributes()
        rank = attributes.get("rank")
        return Opaque(name, rank if type(rank) is int else None, "_parameters" in attributes)

    def _bytes(self, record: Record) -> object:
        first = record.args[0] if record.args else b""
        if isinstance(first, Record) and first.class_name == "_codecs.encode":
            return _encoded(first)
        return first if isinstance(first, bytes) else Opaque(record.class_name)

    def _numpy(self, record: Record) -> object:
        if record.class_name.endswith(".scalar") and len(record.args) == 2:
            kind, data = _numpy_kind(record.args[0]), _raw_bytes(record.args[1])
            if kind in _STRUCT and data is not None:
                value: object = struct.unpack(f"<{_STRUCT[kind]}", data)[0]
                return value
        state = record.state
        if record.class_name.endswith("._reconstruct") and isinstance(state, tuple) and len(state) == 5:
            _, shape, dtype, fortran, contents = state
            kind, data = _numpy_kind(dtype), _raw_bytes(contents)
            if kind in _NUMPY_DTYPES and data is not None and not (fortran and len(numbers(shape)) > 1):
                return MemoryTensor(_NUMPY_DTYPES[kind], numbers(shape), data)
        return Opaque(record.class_name)


def _encoded(record: Record) -> object:
    """`bytes` as protocol 2 writes them: text, one character a byte."""
    text, encoding = record.args if len(record.args) == 2 else (None, None)
    if isinstance(text, str) and encoding == "latin1":
        return text.encode("latin-1")
    return Opaque(record.class_name)


def _raw_bytes(value: object) -> bytes | None:
    if isinstance(value, Record) and value.class_name == "_codecs.encode":
        value = _encoded(value)
    return value if isinstance(value, bytes) else None


def _numpy_kind(dtype: object) -> str:
    """`f8`, `i4` ...; empty for structured, object and big-endian types."""
    if not isinstance(dtype, Record) or dtype.class_name != "numpy.dtype" or not dtype.args:
        return ""
    state = dtype.state
    order = state[1] if isinstance(state, tuple) and len(state) > 1 else "<"
    kind = dtype.args[0]
    return kind if isinstance(kind, str) and order in ("<", "|", "=") else ""


def walk(value: object, path: tuple[object, ...] = ()) -> Iterator[tuple[tuple[object, ...], object]]:
    """Every leaf of a plain value, with the keys that lead to it."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from walk(item, (*path, key))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from walk(item, (*path, index))
    else:
        yield path, value
