"""A pickle written opcode by opcode: classes are named, never imported.

torch's classes reach a pickle by module and name alone, so a file that torch reads can be written without
torch in the process. Protocol 2, the one `torch.save` uses and `torch.load(weights_only=True)` accepts.
Opcodes: `pickletools` of the standard library.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable, Mapping, Sequence

from checkpoint_convert.errors import UnsupportedError
from checkpoint_convert.model import Opaque, TensorSource, Value
from checkpoint_convert.values import is_tensor

Sink = Callable[[bytes], object]
"""Takes the next bytes of the pickle."""


_MOST_REPEATED = 4096


def _fetch(number: int) -> bytes:
    """The opcode that pushes what was stored under a number."""
    return pickle.BINGET + bytes([number]) if number < 256 else pickle.LONG_BINGET + struct.pack("<I", number)


class PickleStream:
    """Writes one pickle to a sink, in order.

    Args:
        sink: takes the bytes.
        on_tensor: writes a tensor met inside a value; without it a tensor is refused.
    """

    def __init__(
        self, sink: Sink, on_tensor: Callable[[PickleStream, TensorSource], None] | None = None
    ) -> None:
        self.raw = sink
        self._on_tensor = on_tensor
        self._memo: dict[object, int] = {}
        self._stored = 0  # values in the reader's memo
        self._repeated: dict[object, bytes] = {}
        sink(pickle.PROTO + b"\x02")

    def stop(self) -> None:
        """End the pickle; the object on the stack is its value."""
        self.raw(pickle.STOP)

    def remember(self, key: object) -> None:
        """Store what is on top of the stack under `key`, for `recall`."""
        self._memo[key] = self.store()

    def store(self) -> int:
        """Store what is on top of the stack, under a number that `fetch` takes."""
        number = self._stored
        self._stored += 1
        wide = struct.pack("<I", number)
        self.raw(pickle.BINPUT + wide[:1] if number < 256 else pickle.LONG_BINPUT + wide)
        return number

    def fetch(self, number: int) -> None:
        """Push what was stored under a number."""
        self.raw(_fetch(number))

    def recall(self, key: object) -> bool:
        """Push what was stored under `key`; False where nothing was."""
        stored = self._memo.get(key)
        if stored is None:
            return False
        self.raw(_fetch(stored))
        return True

    def name(self, module: str, attribute: str) -> None:
        """Push a class or function by its name."""
        key = (module, attribute)
        if not self.recall(key):
            self.raw(pickle.GLOBAL + f"{module}\n{attribute}\n".encode())
            self.remember(key)

    def text(self, text: str) -> None:
        """Push a string; the second time the same string costs a few bytes."""
        if not self.recall(text):
            self._memo[text] = self.new_text(text)

    def new_text(self, text: str) -> int:
        """Push a string and store it; returns its number for `fetch`."""
        encoded = text.encode("utf-8", "surrogatepass")
        self.raw(pickle.BINUNICODE + struct.pack("<I", len(encoded)) + encoded)
        return self.store()

    def repeat(self, key: object, write: Callable[[PickleStream], None]) -> None:
        """Push something that is the same bytes each time, once all it is made of is stored.

        Args:
            key: what makes two of them equal.
            write: pushes it.
        """
        known = self._repeated.get(key)
        if known is not None:
            self.raw(known)
            return
        sink, stored, piece = self.raw, self._stored, bytearray()
        self.raw = piece.extend
        try:
            write(self)
        finally:
            self.raw = sink
        sink(bytes(piece))
        if self._stored == stored and len(self._repeated) < _MOST_REPEATED:
            self._repeated[key] = bytes(piece)

    def integer(self, number: int) -> None:
        """Push an integer of any size."""
        if 0 <= number < 256:
            self.raw(pickle.BININT1 + bytes([number]))
        elif -(2**31) <= number < 2**31:
            self.raw(pickle.BININT + struct.pack("<i", number))
        else:
            encoded = pickle.encode_long(number)
            if len(encoded) < 256:
                self.raw(pickle.LONG1 + bytes([len(encoded)]) + encoded)
            else:
                self.raw(pickle.LONG4 + struct.pack("<i", len(encoded)) + encoded)

    def integers(self, numbers: Sequence[int]) -> None:
        """Push a tuple of integers, such as a shape."""
        self.raw(pickle.MARK)
        for number in numbers:
            self.integer(number)
        self.raw(pickle.TUPLE)

    def value(self, value: Value) -> None:
        """Push plain data: None, numbers, text, bytes, sequences and mappings of such.

        Raises:
            UnsupportedError: a value of an unknown class.
        """
        if value is None:
            self.raw(pickle.NONE)
        elif isinstance(value, bool):
            self.raw(pickle.NEWTRUE if value else pickle.NEWFALSE)
        elif isinstance(value, int):
            self.integer(value)
        elif isinstance(value, float):
            self.raw(pickle.BINFLOAT + struct.pack(">d", value))
        elif isinstance(value, str):
            self.text(value)
        elif isinstance(value, (bytes, bytearray, complex)):
            self._called(value)
        else:
            self._container(value)

    def _called(self, value: bytes | bytearray | complex) -> None:
        # Protocol 2 has no opcode for bytes: CPython itself writes them as a call of `_codecs.encode`.
        if isinstance(value, complex):
            self.name("builtins", "complex")
            self.value((value.real, value.imag))
        else:
            self.name("_codecs", "encode")
            self.value((bytes(value).decode("latin1"), "latin1"))
        self.raw(pickle.REDUCE)

    def _container(self, value: Value) -> None:
        if is_tensor(value):
            if self._on_tensor is None:
                raise UnsupportedError("a tensor stands where only plain data can be written")
            self._on_tensor(self, value)
        elif isinstance(value, Mapping):
            self.raw(pickle.EMPTY_DICT + pickle.MARK)
            for key, item in value.items():
                self.value(key)  # type: ignore[arg-type]  # keys are plain data too
                self.value(item)
            self.raw(pickle.SETITEMS)
        elif isinstance(value, Sequence):
            as_tuple = isinstance(value, tuple)
            self.raw(pickle.MARK if as_tuple else pickle.EMPTY_LIST + pickle.MARK)
            for item in value:
                self.value(item)
            self.raw(pickle.TUPLE if as_tuple else pickle.APPENDS)
        else:
            name = value.class_name if isinstance(value, Opaque) else type(value).__name__
            raise UnsupportedError(f"an object of class {name} is no plain data and cannot be written")
