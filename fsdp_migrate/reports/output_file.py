"""The file that `--output` names: looked at before any work is done for it, and written."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from fsdp_migrate.errors import UsageError


def require_writable(output: Path | None) -> None:
    """Nothing is done whose report would be lost: look, before anything is written or run.

    Raises:
        UsageError: no file can be written there.
    """
    if output is None:
        return
    if output.is_dir():
        why = errno.EISDIR
    elif not output.exists() and not output.parent.is_dir():
        why = errno.ENOTDIR if output.parent.exists() else errno.ENOENT
    elif not os.access(output if output.exists() else output.parent, os.W_OK):
        why = errno.EACCES
    else:
        return
    raise _unwritable(output, os.strerror(why))


def save(output: Path, text: str) -> None:
    """Write the report, byte for byte: names of files in it need not be UTF-8.

    Raises:
        UsageError: it cannot be written after all; the disk may be full.
    """
    try:
        output.write_bytes(text.encode("utf-8", errors="surrogateescape"))
    except OSError as error:
        raise _unwritable(output, error.strerror or str(error)) from error


def _unwritable(output: Path, why: str) -> UsageError:
    return UsageError(
        f"--output {output} cannot be written: {why}",
        hint="Name a file in a directory that exists and is writable.",
    )
