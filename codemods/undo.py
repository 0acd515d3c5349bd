"""Putting files back as they were before the first rewrite, from the record `codemods.record` keeps."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from codemods.atomic import replace_file
from codemods.errors import CodemodError
from codemods.lock import only_writer
from codemods.record import FOLDER, SCRATCH, FileRecord, digest, read_records


@dataclass(frozen=True, slots=True)
class Restored:
    """What `restore` did.

    Attributes:
        restored: files put back.
        removed: files that did not exist before the rewrite.
        edited: those of the restored that a person had edited between two rewrites: put back as edited.
    """

    restored: list[str]
    removed: list[str]
    edited: list[str]


def restore(target: Path) -> Restored:
    """Put every file back as it was before the first rewrite, and remove the record.

    A file that a person edited between two rewrites is put back as edited: no work is lost.

    Raises:
        CodemodError: there is no record, a file was edited since, or a rewrite is under way (nothing is
            restored then).
    """
    with only_writer(target):
        return _restored(target)


def _restored(target: Path) -> Restored:
    folder = target / FOLDER
    records = read_records(target)
    if not records:
        raise CodemodError(
            f"{folder} holds no record of a rewrite", hint="Name the directory that was rewritten."
        )
    edited = []
    for record in records:
        path = target / record.path
        now = digest(path.read_bytes()) if path.exists() else None
        known = {record.sha256_before, record.sha256_after, *record.sha256_earlier}
        if now not in known:
            edited.append(record.path)
    if edited:
        raise CodemodError(
            f"edited since the rewrite: {', '.join(edited)}",
            hint=f"Originals are in {folder / 'original'}; copy back what you need.",
        )
    try:
        (folder / SCRATCH).mkdir(exist_ok=True)
        for record in records:
            kept = record.edited or record.original
            if kept is None:
                with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                    (target / record.path).unlink()
            else:
                data = (folder / kept).read_bytes()
                replace_file(target / record.path, data, scratch=folder / SCRATCH)
    except OSError as error:
        raise CodemodError(
            f"{error.filename or target} cannot be restored: {error.strerror or error}",
            hint=f"The originals are still in {folder / 'original'}; undo can be run again.",
        ) from error
    _remove(folder, records)
    removed = [r.path for r in records if (r.edited or r.original) is None]
    return Restored(
        [r.path for r in records if r.path not in removed],
        removed,
        [r.path for r in records if r.edited is not None],
    )


def _remove(folder: Path, records: Sequence[FileRecord]) -> None:
    # The manifest goes first: without it nothing is left to undo, whenever this is cut short.
    (folder / "manifest.json").unlink()
    shutil.rmtree(folder / SCRATCH, ignore_errors=True)
    for record in records:
        for kept in (record.original, record.edited):
            if kept is not None:
                (folder / kept).unlink(missing_ok=True)
    (folder / ".gitignore").unlink(missing_ok=True)
    for directory in sorted((p for p in folder.rglob("*") if p.is_dir()), reverse=True):
        if not any(directory.iterdir()):
            directory.rmdir()
    if not any(folder.iterdir()):
        folder.rmdir()
