"""Writing a rewrite down: originals and manifest first, then each file at once; `codemods.undo` goes back.

Killed at any moment, it leaves every file as it was or rewritten, and either no record, where nothing was
changed yet, or one that says the rewrite was interrupted and leads back.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from shlex import quote

from codemods.atomic import replace_file
from codemods.errors import CodemodError
from codemods.lock import only_writer
from codemods.model import FileChange, Rewrite
from codemods.record import (
    FOLDER,
    SCRATCH,
    keep_originals,
    manifest_of,
    read_records,
    require_complete,
    write_manifest,
)


class _Changed(Exception):
    """A file is not as it was read."""


def write_rewrite(
    target: Path,
    rewrite: Rewrite,
    *,
    tool: str,
    target_torch: str,
    on_file: Callable[[str], None] = lambda path: None,
) -> None:
    """Write every change of a rewrite.

    The originals and the manifest are on disk before the first file is replaced, and each file is replaced at
    once: a run that is interrupted at any moment can be undone by `codemods.undo.restore`.

    Raises:
        CodemodError: a file changed since, is read-only or cannot be written; an earlier rewrite was
            interrupted, or another is under way.
    """
    if not rewrite.changes:
        require_complete(target)
        return
    with only_writer(target):
        require_complete(target, is_writer=True)
        _write(target, rewrite, tool, target_torch, on_file)


def _write(
    target: Path, rewrite: Rewrite, tool: str, target_torch: str, on_file: Callable[[str], None]
) -> None:
    changes = rewrite.changes
    _require_writable(target, changes)
    folder = target / FOLDER
    is_new, manifest_before = not folder.exists(), _manifest_bytes(folder)
    try:
        for change in changes:
            _require_unchanged(target, change)
        (folder / SCRATCH).mkdir(parents=True, exist_ok=True)
        replace_file(folder / ".gitignore", b"*\n", scratch=folder / SCRATCH)
        manifest = manifest_of(target, rewrite, keep_originals(folder, changes), tool, target_torch)
        write_manifest(folder, {**manifest, "complete": False})
        for change in changes:
            on_file(change.path)
            _require_unchanged(target, change)
            replace_file(target / change.path, change.after, scratch=folder / SCRATCH)
        write_manifest(folder, {**manifest, "complete": True})
        shutil.rmtree(folder / SCRATCH, ignore_errors=True)
    except _Changed as error:
        _take_back(target, changes)
        _put_back(folder, manifest_before, is_new=is_new)
        raise CodemodError(
            f"{error} changed while it was being rewritten; nothing was written", hint="Run again."
        ) from error
    except OSError as error:
        hint = f"Files already replaced are restored by `fsdp-migrate rewrite --undo {quote(str(target))}`."
        if _is_untouched(target, changes):
            _put_back(folder, manifest_before, is_new=is_new)
            hint = "No file was changed. Make the directory and its files writable, or use --diff."
        raise CodemodError(
            f"{error.filename or target} cannot be written: {error.strerror or error}", hint=hint
        ) from error
    except KeyboardInterrupt:
        if _is_untouched(target, changes):
            _put_back(folder, manifest_before, is_new=is_new)
        raise


def _require_writable(target: Path, changes: Sequence[FileChange]) -> None:
    """Files that share values change together: where one is protected, none is written."""
    for change in changes:
        path = target / change.path
        for needed in (path, path.parent):
            if needed.exists() and not os.access(needed, os.W_OK):
                raise CodemodError(
                    f"{needed} is read-only; nothing was written",
                    hint="Make it writable, or name the files to rewrite: what shares values with this one "
                    "then stays as well.",
                )


def _require_unchanged(target: Path, change: FileChange) -> None:
    if _now(target, change) != change.before:
        raise _Changed(target / change.path)


def _now(target: Path, change: FileChange) -> bytes | None:
    try:
        return (target / change.path).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _is_untouched(target: Path, changes: Sequence[FileChange]) -> bool:
    """Whether no file was replaced; where that cannot be told, the record is kept."""
    try:
        return all(_now(target, change) == change.before for change in changes)
    except OSError:
        return False


def _take_back(target: Path, changes: Sequence[FileChange]) -> None:
    """Files that are as we wrote them, as they were; what somebody else made of them stays."""
    for change in changes:
        if _now(target, change) == change.after != change.before:
            if change.before is None:
                (target / change.path).unlink()
            else:
                replace_file(target / change.path, change.before)


def _manifest_bytes(folder: Path) -> bytes | None:
    path = folder / "manifest.json"
    return path.read_bytes() if path.exists() else None


def _put_back(folder: Path, manifest: bytes | None, *, is_new: bool) -> None:
    """The record as it was: where no file was replaced there is nothing to undo."""
    shutil.rmtree(folder if is_new else folder / SCRATCH, ignore_errors=True)
    if manifest is None:
        with contextlib.suppress(OSError):
            (folder / "manifest.json").unlink(missing_ok=True)
        return
    with contextlib.suppress(OSError, CodemodError):  # then the record could not be changed before, either
        replace_file(folder / "manifest.json", manifest)
        records = read_records(folder.parent)
        kept = {name for record in records for name in (record.original, record.edited)}
        for path in [path for home in ("original", "edited") for path in (folder / home).rglob("*")]:
            if path.is_file() and path.relative_to(folder).as_posix() not in kept:
                path.unlink()
