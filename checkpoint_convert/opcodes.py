"""The table of pickle opcodes, and what those of plain values do to the inert machine.

Source: the standard library's `pickletools.opcodes`. An opcode without an entry here is damage; those of
the extension registry and of out-of-band buffers need a program on the reading side and are refused.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable

from checkpoint_convert.pickle_machine import Damaged, Machine

STOP = pickle.STOP[0]
_INT32 = struct.Struct("<i").unpack_from
_UINT32 = struct.Struct("<I").unpack_from


def _unknown(machine: Machine) -> None:
    raise Damaged(f"byte {machine.data[machine.at - 1]:#04x} is no opcode it may use")


HANDLERS: list[Callable[[Machine], None]] = [_unknown] * 256


def on(*codes: bytes) -> Callable[[Callable[[Machine], None]], Callable[[Machine], None]]:
    """Enter a handler for opcodes."""

    def enter(handler: Callable[[Machine], None]) -> Callable[[Machine], None]:
        for code in codes:
            HANDLERS[code[0]] = handler
        return handler

    return enter


def _constant(code: bytes, value: object) -> None:
    HANDLERS[code[0]] = lambda machine: machine.stack.append(value)


def _sized(code: bytes, width: int, make: Callable[[bytes], object]) -> None:
    """An opcode of a `width`-byte length and that many bytes."""
    HANDLERS[code[0]] = lambda machine: machine.stack.append(make(machine.take(machine.number(width))))


def _text(data: bytes) -> object:
    return data.decode("utf-8", "surrogatepass")


def _old_string(data: bytes) -> object:
    # Python 2 wrote text and bytes alike; what is not text stays bytes.
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data


def _raw(data: bytes) -> object:
    return data


def _long(data: bytes) -> object:
    return int.from_bytes(data, "little", signed=True)


for _code, _value in ((pickle.NONE, None), (pickle.NEWTRUE, True), (pickle.NEWFALSE, False)):
    _constant(_code, _value)
for _code, _width, _make in (
    (pickle.SHORT_BINUNICODE, 1, _text),
    (pickle.BINUNICODE8, 8, _text),
    (pickle.SHORT_BINSTRING, 1, _old_string),
    (pickle.BINSTRING, 4, _old_string),
    (pickle.SHORT_BINBYTES, 1, _raw),
    (pickle.BINBYTES, 4, _raw),
    (pickle.BINBYTES8, 8, _raw),
    (pickle.BYTEARRAY8, 8, _raw),
    (pickle.LONG1, 1, _long),
    (pickle.LONG4, 4, _long),
):
    _sized(_code, _width, _make)


@on(pickle.BINUNICODE)  # every name is one
def _binunicode(machine: Machine) -> None:
    at = machine.at + 4
    stop = at + _UINT32(machine.data, machine.at)[0]
    if stop > machine.end:
        raise Damaged(f"it promises {stop - at} bytes where {machine.end - at} are left")
    machine.at = stop
    machine.stack.append(machine.data[at:stop].decode("utf-8", "surrogatepass"))


@on(pickle.PROTO)
def _proto(machine: Machine) -> None:
    version = machine.number(1)
    if version > 5:
        raise Damaged(f"it claims protocol {version}")


@on(pickle.FRAME)
def _frame(machine: Machine) -> None:
    if machine.number(8) > machine.end - machine.at:
        raise Damaged("a frame is longer than what is left")


@on(pickle.BININT)
def _binint(machine: Machine) -> None:
    at = machine.at
    machine.stack.append(_INT32(machine.data, at)[0])
    machine.at = at + 4


@on(pickle.BININT1)
def _binint1(machine: Machine) -> None:
    machine.stack.append(machine.data[machine.at])
    machine.at += 1


@on(pickle.BININT2)
def _binint2(machine: Machine) -> None:
    machine.stack.append(machine.number(2))


@on(pickle.BINFLOAT)
def _binfloat(machine: Machine) -> None:
    machine.stack.append(struct.unpack(">d", machine.take(8))[0])


@on(pickle.INT)
def _int(machine: Machine) -> None:
    line = machine.line()
    machine.stack.append(line == b"01" if line in (b"00", b"01") else int(line))


@on(pickle.LONG)
def _long_line(machine: Machine) -> None:
    machine.stack.append(int(machine.line().rstrip(b"L")))


@on(pickle.FLOAT)
def _float_line(machine: Machine) -> None:
    machine.stack.append(float(machine.line()))


@on(pickle.STRING)
def _string_line(machine: Machine) -> None:
    line = machine.line(text=True)
    if len(line) < 2 or line[0] != line[-1] or line[:1] not in (b"'", b'"'):
        raise Damaged("a text value has no quotes")
    machine.stack.append(line[1:-1].decode("unicode_escape"))


@on(pickle.UNICODE)
def _unicode_line(machine: Machine) -> None:
    machine.stack.append(machine.line(text=True).decode("raw_unicode_escape"))
