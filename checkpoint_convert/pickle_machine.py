"""The state of one pickle run: position, stack, marks, memo, limits. The opcodes work on it (`opcodes`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from mmap import mmap
from typing import TypeAlias

from checkpoint_convert.symbols import Record, Symbol

Buffer: TypeAlias = "bytes | mmap"
PersistentLoad: TypeAlias = "Callable[[object], object]"


@dataclass(frozen=True, slots=True)
class Limits:
    """Where a stream stops being a checkpoint's.

    Attributes:
        objects: containers and records that may be built.
        stack: values that may wait on the stack at one time, marks included.
        memo: entries of the memo.
        line_bytes: length of a text line (names, and numbers in protocol 0).
    """

    objects: int = 40_000_000
    stack: int = 40_000_000
    memo: int = 40_000_000
    line_bytes: int = 4096


class Damaged(Exception):
    """Why the stream cannot be a pickle; `unpickle` adds where."""


_PLAIN_KEYS = frozenset({str, int, float, bool, bytes, type(None), Record, Symbol, complex})
_KEY_PARTS = 4096
_BUILT: dict[tuple[str, str], type] = {
    ("collections", "OrderedDict"): dict,
    ("builtins", "set"): set,
    ("__builtin__", "set"): set,
}
_SIZE = ("torch", "Size")
_INTS = frozenset({int})
_ROW = 8


class Machine:
    """One run over one stream: position, stack, marks, memo."""

    def __init__(
        self, data: Buffer, start: int, persistent_load: PersistentLoad | None, limits: Limits
    ) -> None:
        self.data = data
        self.end = len(data)
        self.at = start
        self.persistent_load = persistent_load
        self.limits = limits
        self.stack: list[object] = []
        self.marks: list[int] = []
        self.memo: list[object] = []  # torch and Python number what they store 0, 1, 2, ...
        self.memo_out_of_order: dict[int, object] = {}
        self.objects = 0
        self._most_objects = limits.objects
        self._rows: dict[tuple[object, ...], tuple[object, ...]] = {}

    # Reading operands.

    def take(self, count: int) -> bytes:
        """The next `count` bytes."""
        stop = self.at + count
        if count < 0 or stop > self.end:
            raise Damaged(f"it promises {count} bytes where {self.end - self.at} are left")
        piece = self.data[self.at : stop]
        self.at = stop
        return piece

    def number(self, count: int) -> int:
        """The next `count` bytes as an unsigned little-endian number."""
        return int.from_bytes(self.take(count), "little")

    def line(self, *, text: bool = False) -> bytes:
        """The next text line, without its newline; names and numbers are short, text may be of any length."""
        end = self.end if text else min(self.end, self.at + self.limits.line_bytes)
        stop = self.data.find(b"\n", self.at, end)
        if stop < 0:
            raise Damaged("a text line does not end")
        line = self.data[self.at : stop]
        self.at = stop + 1
        return line

    def name_line(self) -> str:
        """The next text line as a name."""
        return self.line().decode("utf-8")

    # Building.

    def push(self, value: object) -> None:
        """Put a container or record on the stack."""
        self.objects += 1
        if self.objects > self._most_objects:
            raise Damaged(f"it builds more than {self._most_objects} objects")
        self.stack.append(value)

    def push_tuple(self, values: list[object]) -> None:
        """Put a tuple on the stack; equal rows of integers, of which shapes are made, are one object."""
        row = tuple(values)
        if len(row) <= _ROW and _INTS.issuperset(map(type, row)):
            row = self._rows.setdefault(row, row)
        self.push(row)

    def since_mark(self) -> list[object]:
        """Pop the values above the topmost mark, and the mark."""
        base = self.marks.pop()
        values = self.stack[base:]
        del self.stack[base:]
        return values

    def remember(self, index: int) -> None:
        """Memoise the top of the stack."""
        if self.memo_count >= self.limits.memo:
            raise Damaged(f"it memoises more than {self.limits.memo} values")
        if index == len(self.memo):
            self.memo.append(self.stack[-1])
            if self.memo_out_of_order:
                self.memo_out_of_order.pop(index, None)
        elif 0 <= index < len(self.memo):
            self.memo[index] = self.stack[-1]
        elif index < 0:
            raise Damaged(f"it stores a value as number {index}")
        else:
            self.memo_out_of_order[index] = self.stack[-1]

    @property
    def memo_count(self) -> int:
        """Values that are memoised; the number that `MEMOIZE` gives to the next one."""
        return len(self.memo) + len(self.memo_out_of_order)

    def recall(self, index: int) -> None:
        """Push a memoised value."""
        if 0 <= index < len(self.memo):
            self.stack.append(self.memo[index])
        elif index in self.memo_out_of_order:
            self.stack.append(self.memo_out_of_order[index])
        else:
            raise Damaged(f"it recalls value {index}, which it never stored")

    def call(self, target: object, args: object) -> None:
        """Record a call; the containers torch's state dicts are made of are built."""
        if not isinstance(args, tuple):
            raise Damaged("arguments of a call are no tuple")
        if type(target) is Symbol:
            name = (target.module, target.name)
            if len(args) <= 1 and name in _BUILT:
                self.push(_filled(_BUILT[name], args) if args else _BUILT[name]())
                return
            if name == _SIZE and len(args) == 1 and type(args[0]) is tuple:
                self.push(args[0])
                return
        elif type(target) is not Record:
            raise Damaged(f"it calls a {type(target).__name__}")
        self.push(_record(target, args))

    def persist(self, key: object) -> None:
        """Resolve a persistent id."""
        if self.persistent_load is None:
            raise Damaged("it refers to storages, which this kind of file has not")
        self.push(self.persistent_load(key))


def checked_key(key: object) -> object:
    """The key, if hashing it is cheap: plain, or a tuple of few plain parts.

    Tuples that share their parts can take exponential time to hash, and deeply nested ones exhaust C's stack.
    """
    if type(key) in _PLAIN_KEYS:
        return key
    todo, parts = [key], 0
    while todo:
        part = todo.pop()
        parts += 1
        if parts > _KEY_PARTS:
            raise Damaged("a dictionary key is too large")
        if type(part) is tuple:
            todo.extend(part)
        elif type(part) not in _PLAIN_KEYS:
            raise Damaged(f"a dictionary key is a {type(part).__name__}")
    return key


def _record(target: Symbol | Record, args: tuple[object, ...]) -> Record:
    """A call; the protocols' own helpers stand for the class they are given."""
    if type(target) is Symbol and target.module in ("copyreg", "copy_reg") and args:
        kind = args[0]
        if target.name == "__newobj__":
            return Record(kind, args[1:])
        if target.name == "_reconstructor" and len(args) == 3:
            record = Record(kind, ())
            if isinstance(args[2], dict):
                record.pairs = args[2]
            return record
    return Record(target, args)


def _filled(container: type, args: tuple[object, ...]) -> object:
    if container is set:
        return {checked_key(item) for item in _sequence(args[0])} if args else set()
    built: dict[object, object] = {}
    for pair in _sequence(args[0]) if args else ():
        key, value = _sequence(pair)
        built[checked_key(key)] = value
    return built


def _sequence(value: object) -> list[object] | tuple[object, ...]:
    if not isinstance(value, list | tuple):
        raise Damaged(f"a {type(value).__name__} stands where a sequence is needed")
    return value
