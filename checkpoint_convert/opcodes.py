"""What each pickle opcode does to the inert machine.

Source: the standard library's `pickletools.opcodes`. An opcode without an entry here is damage; those of
the extension registry and of out-of-band buffers need a program on the reading side and are refused.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable

from checkpoint_convert.pickle_machine import Damaged, Machine, checked_key
from checkpoint_convert.symbols import Record, Symbol

STOP = pickle.STOP[0]


def _unknown(machine: Machine) -> None:
    raise Damaged(f"byte {machine.data[machine.at - 1]:#04x} is no opcode it may use")


HANDLERS: list[Callable[[Machine], None]] = [_unknown] * 256


def _on(*codes: bytes) -> Callable[[Callable[[Machine], None]], Callable[[Machine], None]]:
    def enter(handler: Callable[[Machine], None]) -> Callable[[Machine], None]:
        for code in codes:
            HANDLERS[code[0]] = handler
        return handler

    return enter


def _constant(code: bytes, value: object) -> None:
    HANDLERS[code[0]] = lambda machine: machine.stack.append(value)


def _sized(code: bytes, width: int, make: Callable[[Machine, bytes], object]) -> None:
    """An opcode of a `width`-byte length and that many bytes."""
    HANDLERS[code[0]] = lambda machine: machine.stack.append(
        make(machine, machine.take(machine.number(width)))
    )


def _text(machine: Machine, data: bytes) -> object:
    return data.decode("utf-8", "surrogatepass")


def _old_string(machine: Machine, data: bytes) -> object:
    # Python 2 wrote text and bytes alike; what is not text stays bytes.
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data


def _raw(machine: Machine, data: bytes) -> object:
    return data


def _long(machine: Machine, data: bytes) -> object:
    return int.from_bytes(data, "little", signed=True)


for _code, _value in ((pickle.NONE, None), (pickle.NEWTRUE, True), (pickle.NEWFALSE, False)):
    _constant(_code, _value)
for _code, _width, _make in (
    (pickle.SHORT_BINUNICODE, 1, _text),
    (pickle.BINUNICODE, 4, _text),
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


@_on(pickle.PROTO)
def _proto(machine: Machine) -> None:
    version = machine.number(1)
    if version > 5:
        raise Damaged(f"it claims protocol {version}")


@_on(pickle.FRAME)
def _frame(machine: Machine) -> None:
    if machine.number(8) > machine.end - machine.at:
        raise Damaged("a frame is longer than what is left")


@_on(pickle.BININT)
def _binint(machine: Machine) -> None:
    machine.stack.append(int.from_bytes(machine.take(4), "little", signed=True))


@_on(pickle.BININT1)
def _binint1(machine: Machine) -> None:
    machine.stack.append(machine.data[machine.at])
    machine.at += 1


@_on(pickle.BININT2)
def _binint2(machine: Machine) -> None:
    machine.stack.append(machine.number(2))


@_on(pickle.BINFLOAT)
def _binfloat(machine: Machine) -> None:
    machine.stack.append(struct.unpack(">d", machine.take(8))[0])


@_on(pickle.INT)
def _int(machine: Machine) -> None:
    line = machine.line()
    machine.stack.append({"00": False, "01": True}[line] if line in ("00", "01") else int(line))


@_on(pickle.LONG)
def _long_line(machine: Machine) -> None:
    machine.stack.append(int(machine.line().rstrip("L")))


@_on(pickle.FLOAT)
def _float_line(machine: Machine) -> None:
    machine.stack.append(float(machine.line()))


@_on(pickle.STRING)
def _string_line(machine: Machine) -> None:
    line = machine.line()
    if len(line) < 2 or line[0] != line[-1] or line[0] not in "'\"":
        raise Damaged("a text value has no quotes")
    machine.stack.append(line[1:-1].encode("latin-1").decode("unicode_escape"))


@_on(pickle.UNICODE)
def _unicode_line(machine: Machine) -> None:
    machine.stack.append(machine.line().encode("latin-1").decode("raw_unicode_escape"))


@_on(pickle.EMPTY_TUPLE)
def _empty_tuple(machine: Machine) -> None:
    machine.stack.append(())


@_on(pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3)
def _short_tuple(machine: Machine) -> None:
    count = machine.data[machine.at - 1] - pickle.TUPLE1[0] + 1
    if len(machine.stack) - (machine.marks[-1] if machine.marks else 0) < count:
        raise Damaged("a tuple reaches below its mark")
    values = tuple(machine.stack[-count:])
    del machine.stack[-count:]
    machine.push(values)


@_on(pickle.TUPLE)
def _tuple(machine: Machine) -> None:
    machine.push(tuple(machine.since_mark()))


@_on(pickle.EMPTY_LIST)
def _empty_list(machine: Machine) -> None:
    machine.push([])


@_on(pickle.EMPTY_DICT)
def _empty_dict(machine: Machine) -> None:
    machine.push({})


@_on(pickle.EMPTY_SET)
def _empty_set(machine: Machine) -> None:
    machine.push(set())


@_on(pickle.LIST)
def _list(machine: Machine) -> None:
    machine.push(machine.since_mark())


@_on(pickle.DICT)
def _dict(machine: Machine) -> None:
    values = machine.since_mark()
    machine.push({})
    _assign(machine, values)


@_on(pickle.FROZENSET)
def _frozenset(machine: Machine) -> None:
    machine.push(frozenset(checked_key(value) for value in machine.since_mark()))


@_on(pickle.APPEND)
def _append(machine: Machine) -> None:
    value = machine.stack.pop()
    _extend(machine, [value])


@_on(pickle.APPENDS, pickle.ADDITEMS)
def _appends(machine: Machine) -> None:
    _extend(machine, machine.since_mark())


@_on(pickle.SETITEM)
def _setitem(machine: Machine) -> None:
    value, key = machine.stack.pop(), machine.stack.pop()
    _assign(machine, [key, value])


@_on(pickle.SETITEMS)
def _setitems(machine: Machine) -> None:
    _assign(machine, machine.since_mark())


def _extend(machine: Machine, values: list[object]) -> None:
    target = machine.stack[-1]
    if isinstance(target, list):
        target.extend(values)
    elif isinstance(target, set):
        target.update(checked_key(value) for value in values)
    elif isinstance(target, Record):
        if target.items is None:
            target.items = values
        else:
            target.items.extend(values)
    else:
        raise Damaged(f"it appends to a {type(target).__name__}")


def _assign(machine: Machine, values: list[object]) -> None:
    target = machine.stack[-1]
    if isinstance(target, Record):
        target.pairs = target.pairs if target.pairs is not None else {}
        target = target.pairs
    if not isinstance(target, dict):
        raise Damaged(f"it assigns keys to a {type(target).__name__}")
    if len(values) % 2:
        raise Damaged("a key has no value")
    for position in range(0, len(values), 2):
        target[checked_key(values[position])] = values[position + 1]


@_on(pickle.MARK)
def _mark(machine: Machine) -> None:
    machine.marks.append(len(machine.stack))
    if len(machine.marks) > machine.limits.stack:
        raise Damaged("too many marks")


@_on(pickle.POP)
def _pop(machine: Machine) -> None:
    if machine.marks and machine.marks[-1] == len(machine.stack):
        machine.marks.pop()
    else:
        machine.stack.pop()


@_on(pickle.POP_MARK)
def _pop_mark(machine: Machine) -> None:
    machine.since_mark()


@_on(pickle.DUP)
def _dup(machine: Machine) -> None:
    machine.stack.append(machine.stack[-1])


@_on(pickle.PUT)
def _put(machine: Machine) -> None:
    machine.remember(int(machine.line()))


@_on(pickle.BINPUT)
def _binput(machine: Machine) -> None:
    machine.remember(machine.number(1))


@_on(pickle.LONG_BINPUT)
def _long_binput(machine: Machine) -> None:
    machine.remember(machine.number(4))


@_on(pickle.MEMOIZE)
def _memoize(machine: Machine) -> None:
    machine.remember(len(machine.memo))


@_on(pickle.GET)
def _get(machine: Machine) -> None:
    machine.recall(int(machine.line()))


@_on(pickle.BINGET)
def _binget(machine: Machine) -> None:
    machine.recall(machine.number(1))


@_on(pickle.LONG_BINGET)
def _long_binget(machine: Machine) -> None:
    machine.recall(machine.number(4))


@_on(pickle.GLOBAL)
def _global(machine: Machine) -> None:
    module = machine.line()
    machine.push(Symbol(module, machine.line()))


@_on(pickle.STACK_GLOBAL)
def _stack_global(machine: Machine) -> None:
    name, module = machine.stack.pop(), machine.stack.pop()
    if not isinstance(name, str) or not isinstance(module, str):
        raise Damaged("a global's name is no text")
    machine.push(Symbol(module, name))


@_on(pickle.REDUCE)
def _reduce(machine: Machine) -> None:
    args, target = machine.stack.pop(), machine.stack.pop()
    machine.call(target, args)


@_on(pickle.NEWOBJ)
def _newobj(machine: Machine) -> None:
    args, target = machine.stack.pop(), machine.stack.pop()
    machine.call(target, args)


@_on(pickle.NEWOBJ_EX)
def _newobj_ex(machine: Machine) -> None:
    kwargs, args, target = machine.stack.pop(), machine.stack.pop(), machine.stack.pop()
    if not isinstance(args, tuple):
        raise Damaged("arguments of a call are no tuple")
    machine.call(target, (*args, kwargs))


@_on(pickle.INST)
def _inst(machine: Machine) -> None:
    module = machine.line()
    symbol = Symbol(module, machine.line())
    machine.call(symbol, tuple(machine.since_mark()))


@_on(pickle.OBJ)
def _obj(machine: Machine) -> None:
    values = machine.since_mark()
    if not values:
        raise Damaged("an object has no class")
    machine.call(values[0], tuple(values[1:]))


@_on(pickle.BUILD)
def _build(machine: Machine) -> None:
    state, target = machine.stack.pop(), machine.stack[-1]
    # Attributes on a dict or list (`state_dict._metadata`) carry no tensor and are left behind.
    if isinstance(target, Record):
        target.state = state


@_on(pickle.PERSID)
def _persid(machine: Machine) -> None:
    machine.persist(machine.line())


@_on(pickle.BINPERSID)
def _binpersid(machine: Machine) -> None:
    machine.persist(machine.stack.pop())
