"""Read a pickle without running it: protocols 0 to 5, every global a name, every call a record.

Nothing a stream says is imported, called or looked up, so a hostile stream can only be wrong: it ends in
`UnreadableError`, in time linear in its length and within `Limits`. The opcodes are those of the standard
library's `pickletools`; the way torch uses them is in `torch/serialization.py` (`_save`, `_legacy_save`).
"""

from __future__ import annotations

import pickle
import struct

from checkpoint_convert.errors import UnreadableError
from checkpoint_convert.opcodes import STOP
from checkpoint_convert.opcodes_of_objects import HANDLERS
from checkpoint_convert.pickle_machine import Buffer, Damaged, Limits, Machine, PersistentLoad

_BINGET, _LONG_BINPUT, _BININT1 = pickle.BINGET[0], pickle.LONG_BINPUT[0], pickle.BININT1[0]
_MARK, _EMPTY_TUPLE = pickle.MARK[0], pickle.EMPTY_TUPLE[0]
_U32 = struct.Struct("<I").unpack_from


def unpickle(
    data: Buffer,
    *,
    where: str,
    start: int = 0,
    persistent_load: PersistentLoad | None = None,
    limits: Limits | None = None,
) -> tuple[object, int]:
    """Read one pickle.

    Args:
        data: the bytes that hold it.
        where: what to call them in messages, such as `model.pt, record data.pkl`.
        start: where in `data` the pickle begins.
        persistent_load: turns a persistent id into a value; None where none may occur.

    Returns:
        The value, of plain Python containers and scalars, `Symbol`s and `Record`s, and the position after it.

    Raises:
        UnreadableError: the stream is truncated, malformed, or past the limits; names the byte.
    """
    machine = Machine(data, start, persistent_load, limits or Limits())
    try:
        return _run(machine), machine.at
    except Damaged as error:
        raise _unreadable(where, machine.at, str(error)) from None
    except (IndexError, struct.error) as error:
        is_cut = machine.at >= len(data) or isinstance(error, struct.error)  # an operand of several bytes
        reason = "the stream ends too early" if is_cut else "a value is missing on its stack"
        raise _unreadable(where, machine.at, reason) from None
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        # Operands of the wrong kind: only a damaged or forged stream has them.
        raise _unreadable(where, machine.at, str(error)) from None


def _unreadable(where: str, at: int, reason: str) -> UnreadableError:
    return UnreadableError(
        f"{where}: not a readable pickle at byte {at}: {reason}",
        hint="The file is damaged, cut short or no checkpoint. Compare its size with the original's.",
    )


def _run(machine: Machine) -> object:
    data, stack, end = machine.data, machine.stack, machine.end
    marks, memo, late = machine.marks, machine.memo, machine.memo_out_of_order
    handlers, stack_limit, memo_limit = HANDLERS, machine.limits.stack, machine.limits.memo
    at = machine.at
    try:
        while True:
            if at >= end:
                raise Damaged("the stream ends too early")
            code = data[at]
            at += 1
            # Most opcodes of a large state dict are one of these, so they cost no call.
            if code == _LONG_BINPUT and not late:
                index = _U32(data, at)[0]
                at += 4
                if index == len(memo) and index < memo_limit:
                    memo.append(stack[-1])
                else:
                    machine.remember(index)
            elif code == _BINGET and data[at] < len(memo):
                stack.append(memo[data[at]])
                at += 1
            elif code == _BININT1:
                stack.append(data[at])
                at += 1
            elif code == _MARK and len(marks) < stack_limit:
                marks.append(len(stack))
            elif code == _EMPTY_TUPLE:
                stack.append(())
            elif code == STOP:
                break
            else:
                machine.at = at
                handlers[code](machine)
                at = machine.at
            if len(stack) > stack_limit:
                raise Damaged(f"more than {stack_limit} values wait on its stack")
    finally:
        machine.at = max(at, machine.at)
    if len(stack) != 1 or marks:
        raise Damaged("it stops with an unfinished value")
    return stack[0]
