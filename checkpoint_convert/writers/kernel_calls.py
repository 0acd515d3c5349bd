"""Calls of the Linux kernel that Python has no function for; where there are none, nothing is called."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Any

from checkpoint_convert.destination import NO_SPACE

_WRITE = 2
"""linux/fs.h: SYNC_FILE_RANGE_WRITE, start writing what is dirty, wait for nothing."""

WORTH_RESERVING_BYTES = 8 << 20
"""Smaller files are not reserved: there is little to gain."""


@functools.cache
def start_writing() -> Callable[[int], object] | None:
    """Linux's `sync_file_range` of a whole file, given its descriptor; None where there is no such call."""
    call = _call("sync_file_range", "c_int c_int64 c_int64 c_uint")
    return None if call is None else lambda descriptor: call(descriptor, 0, 0, _WRITE)


def reserve(descriptor: int, size_bytes: int) -> None:
    """Give a file its size and its room at once, where the file system can.

    Finding room block by block as a file grows is a quarter of the work of writing it (ext4). Not
    `os.posix_fallocate`, which writes into every block where the file system cannot do better.

    Raises:
        OSError: there is no room.
    """
    if size_bytes < WORTH_RESERVING_BYTES:
        return
    # musl's plain one takes 64 bits, and is its only one.
    call = _call("fallocate64", _FALLOCATE) or _call("fallocate", _FALLOCATE)
    if call is not None and call(descriptor, 0, 0, size_bytes):
        import ctypes

        if (number := ctypes.get_errno()) in NO_SPACE:
            raise OSError(number, os.strerror(number))


_FALLOCATE = "c_int c_int c_int64 c_int64"


@functools.cache
def _call(name: str, arguments: str) -> Callable[..., int] | None:
    """A function of the C library, its arguments by ctypes' names."""
    if not sys.platform.startswith("linux"):
        return None
    import ctypes

    try:
        call: Any = getattr(ctypes.CDLL(None, use_errno=True), name)
    except (OSError, AttributeError):
        return None
    call.argtypes = [getattr(ctypes, argument) for argument in arguments.split()]
    found: Callable[..., int] = call
    return found
