"""One writer of a directory at a time: rewriting and undoing keep others out while they replace files.

The lock is the system's own on a file, and ends with the process that holds it: the file that a killed
process leaves holds nobody up, and the next writer removes it. In it stands the number of the process.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from codemods.errors import CodemodError

try:
    import fcntl
except ImportError:  # not a POSIX system: nothing keeps others out there
    fcntl = None  # type: ignore[assignment]

LOCK = ".fsdp-migrate.lock"
"""Lies in the target while files are replaced, not in the record, which may come and go meanwhile."""


@contextlib.contextmanager
def only_writer(target: Path) -> Iterator[None]:
    """Keep other rewrites of a directory out inside of the block.

    Where no file can be made or locked nothing is kept out: what cannot be written says so itself.

    Raises:
        CodemodError: another process is writing there.
    """
    path = target / LOCK
    handle = _locked(path)
    if handle is None:
        yield
        return
    try:
        with contextlib.suppress(OSError):  # the disk is full: the number only serves a message
            os.ftruncate(handle, 0)
            os.write(handle, f"{os.getpid()}\n".encode())
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()  # while it is held: who waits for it looks whether the file is still there
        os.close(handle)


def require_no_writer(target: Path) -> None:
    """Go no further while another process writes there; nothing is made or removed.

    Raises:
        CodemodError: one does.
    """
    if fcntl is None:
        return
    try:
        handle = os.open(target / LOCK, os.O_RDONLY)
    except OSError:
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise _busy(target, handle) from error
    except OSError:  # the file system has no locks
        return
    finally:
        os.close(handle)


def _locked(path: Path) -> int | None:
    """The file, open and locked; None where that is not possible here."""
    while fcntl is not None:
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError:
            return None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_still_there(path, handle):
                return handle
            os.close(handle)  # who held it has removed it meanwhile
        except BlockingIOError as error:
            busy = _busy(path.parent, handle)
            os.close(handle)
            raise busy from error
        except OSError:  # the file system has no locks
            os.close(handle)
            with contextlib.suppress(OSError):
                path.unlink()
            return None
    return None


def _busy(target: Path, handle: int) -> CodemodError:
    writer = os.read(handle, 20).decode(errors="replace").strip()
    return CodemodError(
        f"another fsdp-migrate{f' (process {writer})' if writer else ''} is writing to {target}",
        hint="Wait until it has ended, then run again.",
    )


def _is_still_there(path: Path, handle: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(handle))
    except FileNotFoundError:
        return False
