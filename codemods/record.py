"""Writing a rewrite down: originals and manifest first, then each file at once, so that everything can be
restored.

`<target>/.fsdp-migrate/manifest.json` says what was changed; `<target>/.fsdp-migrate/original/<path>` holds
every changed file as it was before the first rewrite. `fsdp-migrate verify` runs the original from there.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from codemods.errors import CodemodError
from codemods.model import FileChange, Reported, Rewrite

FOLDER = ".fsdp-migrate"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class FileRecord:
    """One changed file.

    Attributes:
        path: relative to the target, forward slashes.
        sha256_before: hexadecimal; None where the file did not exist before.
        original: path of the kept copy, relative to the record's folder; None likewise.
    """

    path: str
    sha256_before: str | None
    sha256_after: str
    original: str | None


def digest(data: bytes) -> str:
    """SHA-256, hexadecimal."""
    return hashlib.sha256(data).hexdigest()


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
    once: a run that is interrupted at any moment can be undone by `restore`.

    Raises:
        CodemodError: a file changed since it was read, or cannot be written.
    """
    if not rewrite.changes:
        return
    _check_unchanged(target, rewrite.changes)
    folder = target / FOLDER
    try:
        (folder / "original").mkdir(parents=True, exist_ok=True)
        _replace(folder / ".gitignore", b"*\n")
        records = _keep_originals(folder, rewrite.changes)
        manifest = _manifest(target, rewrite, records, tool, target_torch)
        _replace(folder / "manifest.json", json.dumps(manifest, indent=1).encode() + b"\n")
        for change in rewrite.changes:
            on_file(change.path)
            _replace(target / change.path, change.after)
    except OSError as error:
        raise CodemodError(
            f"{error.filename or target} cannot be written: {error.strerror or error}",
            hint=f"Files already replaced are restored by `fsdp-migrate rewrite --undo {target}`.",
        ) from error


def restore(target: Path) -> list[str]:
    """Put every file back as it was before the first rewrite, and remove the record.

    Returns:
        Paths restored or removed.

    Raises:
        CodemodError: there is no record, or a file was edited since (nothing is restored then).
    """
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
        if now not in (record.sha256_before, record.sha256_after):
            edited.append(record.path)
    if edited:
        raise CodemodError(
            f"edited since the rewrite: {', '.join(edited)}",
            hint=f"Originals are in {folder / 'original'}; copy back what you need.",
        )
    for record in records:
        if record.original is None:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                (target / record.path).unlink()
        else:
            _replace(target / record.path, (folder / record.original).read_bytes())
    _remove(folder, records)
    return [record.path for record in records]


def read_records(target: Path) -> list[FileRecord]:
    """The files of an earlier rewrite; empty where there was none.

    Raises:
        CodemodError: the manifest is damaged.
    """
    path = target / FOLDER / "manifest.json"
    if not path.exists():
        return []
    try:
        found = json.loads(path.read_text())
        if found["version"] != _VERSION:
            raise CodemodError(
                f"{path} has version {found['version']}", hint="Use the version that wrote it."
            )
        keys = ("path", "sha256_before", "sha256_after", "original")
        return [FileRecord(**{key: item[key] for key in keys}) for item in found["files"]]
    except (ValueError, KeyError, TypeError) as error:
        raise CodemodError(
            f"{path} is damaged: {error}", hint="Restore it, or remove it to start a new record."
        ) from error


def _check_unchanged(target: Path, changes: Sequence[FileChange]) -> None:
    for change in changes:
        path = target / change.path
        now = path.read_bytes() if path.exists() else None
        if now != change.before:
            raise CodemodError(
                f"{path} changed while it was being rewritten; nothing was written", hint="Run again."
            )


def _keep_originals(folder: Path, changes: Sequence[FileChange]) -> list[FileRecord]:
    """Copies of what is about to change; a copy of an earlier rewrite stays the original."""
    records = {record.path: record for record in read_records(folder.parent)}
    for change in changes:
        after = digest(change.after)
        earlier = records.get(change.path)
        if earlier is not None:
            records[change.path] = FileRecord(change.path, earlier.sha256_before, after, earlier.original)
        elif change.before is None:
            records[change.path] = FileRecord(change.path, None, after, None)
        else:
            original = f"original/{change.path}"
            (folder / original).parent.mkdir(parents=True, exist_ok=True)
            _replace(folder / original, change.before)
            records[change.path] = FileRecord(change.path, digest(change.before), after, original)
    return sorted(records.values(), key=lambda record: record.path)


def _manifest(
    target: Path, rewrite: Rewrite, records: Sequence[FileRecord], tool: str, target_torch: str
) -> Mapping[str, object]:
    changed = {change.path for change in rewrite.changes}
    earlier = _earlier(target)
    sites = [
        {"path": s.path, "line": s.line, "form": s.form, "units": s.units}
        for s in rewrite.wrap_sites
        if s.form != "left" or s.path in changed
    ]
    kept = [s for s in earlier.get("wrap_sites", []) if s.get("path") not in {new["path"] for new in sites}]
    return {
        "version": _VERSION,
        "tool": tool,
        "target_torch": target_torch,
        "created": earlier.get("created")
        or datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "git_commit": earlier.get("git_commit") if earlier else git_commit(target),
        "files": [
            {
                "path": r.path,
                "sha256_before": r.sha256_before,
                "sha256_after": r.sha256_after,
                "original": r.original,
            }
            for r in records
        ],
        "wrap_sites": [*kept, *sites],
        "findings": [finding_record(item) for item in rewrite.reported],
    }


def _earlier(target: Path) -> dict[str, list[dict[str, object]]]:
    path = target / FOLDER / "manifest.json"
    if not path.exists():
        return {}
    found = json.loads(path.read_text())
    return found if isinstance(found, dict) else {}


def finding_record(item: Reported) -> dict[str, object]:
    """A finding as JSON."""
    found = item.finding
    return {
        "code": found.code,
        "path": found.place.path,
        "line": found.place.line,
        "column": found.place.column,
        "outcome": item.outcome.value,
        "safety": found.safety.name.lower(),
        "message": found.message,
        "remedy": found.remedy,
        "detail": item.detail or found.detail,
    }


def git_commit(target: Path) -> str | None:
    """The commit checked out; None outside git."""
    try:
        done = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=target, capture_output=True, text=True, check=False
        )
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _replace(path: Path, data: bytes) -> None:
    """Write a file at once: a reader sees the old contents or the new ones. Permissions stay."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.chmod(path.stat().st_mode & 0o7777 if path.exists() else 0o644)
        temporary.replace(path.resolve() if path.is_symlink() else path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _remove(folder: Path, records: Sequence[FileRecord]) -> None:
    for record in records:
        if record.original is not None:
            (folder / record.original).unlink(missing_ok=True)
    for name in ("manifest.json", ".gitignore"):
        (folder / name).unlink(missing_ok=True)
    for directory in sorted((p for p in folder.rglob("*") if p.is_dir()), reverse=True):
        if not any(directory.iterdir()):
            directory.rmdir()
    if not any(folder.iterdir()):
        folder.rmdir()
