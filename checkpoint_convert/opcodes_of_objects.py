"""What the opcodes of containers, the memo, names and calls do to the inert machine.

Importing `HANDLERS` from here gives the table with all of them entered.
"""

from __future__ import annotations

import pickle
import struct

from checkpoint_convert.opcodes import HANDLERS, on
from checkpoint_convert.pickle_machine import Damaged, Machine, checked_key
from checkpoint_convert.symbols import Record, Symbol

__all__ = ["HANDLERS"]

_BEFORE_TUPLE1 = pickle.TUPLE1[0] - 1
_UINT32 = struct.Struct("<I").unpack_from


@on(pickle.EMPTY_TUPLE)
def _empty_tuple(machine: Machine) -> None:
    machine.stack.append(())


@on(pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3)
def _short_tuple(machine: Machine) -> None:
    stack, marks = machine.stack, machine.marks
    base = len(stack) - (machine.data[machine.at - 1] - _BEFORE_TUPLE1)
    if base < (marks[-1] if marks else 0):
        raise Damaged("a tuple reaches below its mark")
    values = stack[base:]
    del stack[base:]
    machine.push_tuple(values)


@on(pickle.TUPLE)
def _tuple(machine: Machine) -> None:
    machine.push_tuple(machine.since_mark())


@on(pickle.EMPTY_LIST)
def _empty_list(machine: Machine) -> None:
    machine.push([])


@on(pickle.EMPTY_DICT)
def _empty_dict(machine: Machine) -> None:
    machine.push({})


@on(pickle.EMPTY_SET)
def _empty_set(machine: Machine) -> None:
    machine.push(set())


@on(pickle.LIST)
def _list(machine: Machine) -> None:
    machine.push(machine.since_mark())


@on(pickle.DICT)
def _dict(machine: Machine) -> None:
    values = machine.since_mark()
    machine.push({})
    _assign(machine, values)


@on(pickle.FROZENSET)
def _frozenset(machine: Machine) -> None:
    machine.push(frozenset(checked_key(value) for value in machine.since_mark()))


@on(pickle.APPEND)
def _append(machine: Machine) -> None:
    value = machine.stack.pop()
    _extend(machine, [value])


@on(pickle.APPENDS, pickle.ADDITEMS)
def _appends(machine: Machine) -> None:
    _extend(machine, machine.since_mark())


@on(pickle.SETITEM)
def _setitem(machine: Machine) -> None:
    stack = machine.stack
    value, key = stack.pop(), stack.pop()
    if type(stack[-1]) is dict and type(key) is str:
        stack[-1][key] = value
    else:
        _assign(machine, [key, value])


@on(pickle.SETITEMS)
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
        key = values[position]
        target[key if type(key) is str else checked_key(key)] = values[position + 1]


@on(pickle.MARK)
def _mark(machine: Machine) -> None:
    machine.marks.append(len(machine.stack))
    if len(machine.marks) > machine.limits.stack:
        raise Damaged("too many marks")


@on(pickle.POP)
def _pop(machine: Machine) -> None:
    if machine.marks and machine.marks[-1] == len(machine.stack):
        machine.marks.pop()
    else:
        machine.stack.pop()


@on(pickle.POP_MARK)
def _pop_mark(machine: Machine) -> None:
    machine.since_mark()


@on(pickle.DUP)
def _dup(machine: Machine) -> None:
    machine.stack.append(machine.stack[-1])


@on(pickle.PUT)
def _put(machine: Machine) -> None:
    machine.remember(int(machine.line()))


@on(pickle.BINPUT)
def _binput(machine: Machine) -> None:
    machine.remember(machine.data[machine.at])
    machine.at += 1


@on(pickle.LONG_BINPUT)
def _long_binput(machine: Machine) -> None:
    machine.remember(machine.number(4))


@on(pickle.MEMOIZE)
def _memoize(machine: Machine) -> None:
    machine.remember(machine.memo_count)


@on(pickle.GET)
def _get(machine: Machine) -> None:
    machine.recall(int(machine.line()))


@on(pickle.BINGET)
def _binget(machine: Machine) -> None:
    machine.recall(machine.data[machine.at])
    machine.at += 1


@on(pickle.LONG_BINGET)
def _long_binget(machine: Machine) -> None:
    index, memo = _UINT32(machine.data, machine.at)[0], machine.memo
    machine.at += 4
    if index < len(memo):
        machine.stack.append(memo[index])
    else:
        machine.recall(index)


@on(pickle.GLOBAL)
def _global(machine: Machine) -> None:
    module = machine.name_line()
    machine.push(Symbol(module, machine.name_line()))


@on(pickle.STACK_GLOBAL)
def _stack_global(machine: Machine) -> None:
    name, module = machine.stack.pop(), machine.stack.pop()
    if not isinstance(name, str) or not isinstance(module, str):
        raise Damaged("a global's name is no text")
    machine.push(Symbol(module, name))


@on(pickle.REDUCE)
def _reduce(machine: Machine) -> None:
    args, target = machine.stack.pop(), machine.stack.pop()
    machine.call(target, args)


@on(pickle.NEWOBJ)
def _newobj(machine: Machine) -> None:
    args, target = machine.stack.pop(), machine.stack.pop()
    machine.call(target, args)


@on(pickle.NEWOBJ_EX)
def _newobj_ex(machine: Machine) -> None:
    kwargs, args, target = machine.stack.pop(), machine.stack.pop(), machine.stack.pop()
    if not isinstance(args, tuple):
        raise Damaged("arguments of a call are no tuple")
    machine.call(target, (*args, kwargs))


@on(pickle.INST)
def _inst(machine: Machine) -> None:
    module = machine.name_line()
    symbol = Symbol(module, machine.name_line())
    machine.call(symbol, tuple(machine.since_mark()))


@on(pickle.OBJ)
def _obj(machine: Machine) -> None:
    values = machine.since_mark()
    if not values:
        raise Damaged("an object has no class")
    machine.call(values[0], tuple(values[1:]))


@on(pickle.BUILD)
def _build(machine: Machine) -> None:
    state, target = machine.stack.pop(), machine.stack[-1]
    # Attributes on a dict or list (`state_dict._metadata`) carry no tensor and are left behind.
    if isinstance(target, Record):
        target.build(state)


@on(pickle.PERSID)
def _persid(machine: Machine) -> None:
    machine.persist(machine.name_line())


@on(pickle.BINPERSID)
def _binpersid(machine: Machine) -> None:
    machine.persist(machine.stack.pop())
