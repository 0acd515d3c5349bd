"""Scalars of TensorBoard's event files, as lines of text.

A file is a row of records (TFRecord): 8 bytes of length, 4 of checksum, the record, 4 of checksum. A record
is a protocol buffer `Event` (tensorboard/compat/proto/event.proto: step 2, summary 5), whose summary holds
values (summary.proto: tag 1, simple_value 2).
"""

from __future__ import annotations

import contextlib
import gc
import struct
import sys
from collections.abc import Callable, Iterator

_WRITERS = ("torch.utils.tensorboard.writer", "tensorboardX.writer")
_TRACKERS = ("wandb", "mlflow", "comet_ml", "neptune", "clearml", "aim", "swanlab", "trackio")
NAME = "events.out.tfevents"


def flush_writers() -> None:
    """Let this process's writers write what they hold: they do so every two minutes.

    One that cannot write, to a full disk say, leaves its file as it is.
    """
    kinds = tuple(module.SummaryWriter for name in _WRITERS if (module := sys.modules.get(name)) is not None)
    if kinds:
        for one in gc.get_objects():
            if issubclass(type(one), kinds):
                with contextlib.suppress(OSError):
                    one.flush()


def say_trackers(say: Callable[[str], None]) -> None:
    """Name the libraries in this process that keep what they are given in files of their own kind."""
    if used := [name for name in _TRACKERS if name in sys.modules]:
        say(
            f"numbers that the job gives to {', '.join(used)} alone are not compared; those that it prints, "
            "or writes to CSV, JSON or TensorBoard files, are"
        )


def scalar_lines(data: bytes) -> Iterator[str]:
    """One line for each scalar of a file; what was cut off in the middle of a record is left out."""
    at = 0
    while at + 12 <= len(data):
        size = int.from_bytes(data[at : at + 8], "little")
        record = data[at + 12 : at + 12 + size]
        at += 16 + size
        if len(record) < size:
            return
        event = list(_fields(record))
        step = next((value for number, value in event if number == 2 and isinstance(value, int)), 0)
        for number, summary in event:
            if number == 5 and isinstance(summary, bytes):
                yield from _values(step, summary)


def _values(step: int, summary: bytes) -> Iterator[str]:
    for _, value in _fields(summary):
        fields = dict(_fields(value)) if isinstance(value, bytes) else {}
        tag, simple = fields.get(1), fields.get(2)
        if isinstance(tag, bytes) and isinstance(simple, bytes) and len(simple) == 4:
            yield f"step {step}, {tag.decode(errors='replace')}: {struct.unpack('<f', simple)[0]:.7g}"


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of each field: whole numbers, or the bytes of anything else."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(message, at)
            yield key >> 3, value
            continue
        if kind == 2:
            size, at = _varint(message, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            return
        yield key >> 3, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """A number of which each byte holds 7 bits, the lowest first, and where it ends."""
    value = shift = 0
    for byte in message[at : at + 10]:
        value |= (byte & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if byte < 0x80:
            break
    return value, at
