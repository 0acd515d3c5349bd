"""The record of a rewrite: what is kept of it, written by `codemods.write`, used by `codemods.undo`.

`<target>/.fsdp-migrate/manifest.json` says what was changed; `<target>/.fsdp-migrate/original/<path>` holds
every changed file as it was before the first rewrite. `fsdp-migrate verify` runs the original from there.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from shlex import quote
from typing import Any

from codemods.atomic import replace_file
from codemods.errors import CodemodError
from codemods.lock import require_no_writer
from codemods.model import FileChange, Reported, Rewrite

FOLDER = ".fsdp-migrate"
SCRATCH = "unfinished"
"""Where files are written before they are moved to their place."""
_VERSION = 1


@dataclass(frozen=True, slots=True)
class FileRecord:
    """One changed file.

    Attributes:
        path: relative to the target, forward slashes.
        sha256_before: hexadecimal; None where the file did not exist before.
        original: path of the kept copy, relative to the record's folder; None likewise.
        sha256_earlier: what earlier rewrites of the file wrote; a rewrite that is interrupted leaves it so.
        edited: path of a copy of what a person had made of it before a later rewrite; None if nobody had.
    """

    path: str
    sha256_before: str | None
    sha256_after: str
    original: str | None
    sha256_earlier: tuple[str, ...] = ()
    edited: str | None = None


def digest(data: bytes) -> str:
    """SHA-256, hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def is_interrupted(target: Path) -> bool:
    """Whether a rewrite of this directory began to replace files and did not end."""
    return _earlier(target).get("complete") is False


def require_complete(target: Path, *, is_writer: bool = False) -> None:
    """Go no further where an earlier rewrite was interrupted: half of its files would be taken for all.

    Args:
        is_writer: whether this process alone writes there (`codemods.lock`).

    Raises:
        CodemodError: it was, or it is still under way.
    """
    if is_interrupted(target):
        if not is_writer:
            require_no_writer(target)
        raise CodemodError(
            f"an earlier rewrite of {target} was interrupted: some of its files are rewritten, some not",
            hint=f"`fsdp-migrate rewrite --undo {quote(str(target))}` restores all of them; then run again.",
        )


def write_manifest(folder: Path, manifest: Mapping[str, object]) -> None:
    """Write the manifest at once."""
    text = json.dumps(manifest, indent=1)
    replace_file(folder / "manifest.json", text.encode() + b"\n", scratch=folder / SCRATCH)


def read_records(target: Path) -> list[FileRecord]:
    """The files of an earlier rewrite; empty where there was none.

    Raises:
        CodemodError: the manifest is damaged, or cannot be read.
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
        records = [
            FileRecord(
                **{key: item[key] for key in keys},
                sha256_earlier=tuple(item.get("sha256_earlier", ())),
                edited=item.get("edited"),
            )
            for item in found["files"]
        ]
        for name in (name for r in records for name in (r.path, r.original, r.edited) if name is not None):
            if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
                raise ValueError(f"{name} lies outside")  # a repository's record may be anybody's
        return records
    except OSError as error:
        raise CodemodError(
            f"{path} cannot be read: {error.strerror}", hint="See to it that it can be read."
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise CodemodError(
            f"{path} is damaged: {error}", hint="Restore it, or remove it to start a new record."
        ) from error


def keep_originals(folder: Path, changes: Sequence[FileChange]) -> list[FileRecord]:
    """Copies of what is about to change; a copy of an earlier rewrite stays the original."""
    records = {record.path: record for record in read_records(folder.parent)}
    for change in changes:
        after = digest(change.after)
        earlier = records.get(change.path)
        if earlier is not None:
            records[change.path] = _kept_again(folder, change, earlier)
        elif change.before is None:
            records[change.path] = FileRecord(change.path, None, after, None)
        else:
            original = f"original/{change.path}"
            replace_file(folder / original, change.before, scratch=folder / SCRATCH)
            records[change.path] = FileRecord(change.path, digest(change.before), after, original)
    return sorted(records.values(), key=lambda record: record.path)


def _kept_again(folder: Path, change: FileChange, earlier: FileRecord) -> FileRecord:
    """The record of a file that an earlier rewrite changed as well; its original stays what it was."""
    known = (*earlier.sha256_earlier, earlier.sha256_after)
    edited = earlier.edited
    if change.before is not None and digest(change.before) not in (*known, earlier.sha256_before):
        edited = f"edited/{change.path}"
        replace_file(folder / edited, change.before, scratch=folder / SCRATCH)
        known = (*known, digest(change.before))
    return FileRecord(
        change.path,
        earlier.sha256_before,
        digest(change.after),
        earlier.original,
        tuple(dict.fromkeys(known)),
        edited,
    )


def manifest_of(
    target: Path, rewrite: Rewrite, records: Sequence[FileRecord], tool: str, target_torch: str
) -> Mapping[str, object]:
    """What was changed, by which tool, and what was found; joined with an earlier rewrite's."""
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
                "sha256_earlier": list(r.sha256_earlier),
                "edited": r.edited,
            }
            for r in records
        ],
        "wrap_sites": [*kept, *sites],
        "findings": [finding_record(item) for item in rewrite.reported],
    }


def _earlier(target: Path) -> dict[str, Any]:
    path = target / FOLDER / "manifest.json"
    try:
        found = json.loads(path.read_text()) if path.exists() else {}
    except (OSError, ValueError):
        return {}  # damaged: reading the records says so
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
