"""Writing a file at once."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path


def replace_file(path: Path, data: bytes, *, scratch: Path | None = None) -> None:
    """Write a file at once: a reader sees the old contents or the new ones. Mode and owner stay.

    Args:
        scratch: an existing directory for the unfinished file, so that a killed process leaves nothing beside
            the file; used where it lies on the same file system.

    Raises:
        OSError: it cannot be written; the file is as it was.
    """
    path = path.resolve() if path.is_symlink() else path
    path.parent.mkdir(parents=True, exist_ok=True)
    home = path.parent if scratch is None or _device(scratch) != _device(path.parent) else scratch
    handle, name = tempfile.mkstemp(dir=home, prefix=f".{path.name[:50]}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        _take_after(temporary, path)
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def _device(folder: Path) -> int:
    return folder.stat().st_dev


def _take_after(temporary: Path, path: Path) -> None:
    """Give the new file the mode and, as far as one may, the owner of the old one."""
    try:
        old = path.stat()
    except FileNotFoundError:
        temporary.chmod(0o644)
        return
    new = temporary.stat()
    if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
        with contextlib.suppress(OSError):
            os.chown(temporary, old.st_uid, old.st_gid)
    temporary.chmod(stat.S_IMODE(old.st_mode))
