"""Sources behind URLs (`s3://`, `https://`, whatever fsspec knows), as files that are read on demand.

A remote file becomes a sparse local one of the same size whose head, tail and small companions are really
there; all else is fetched when it is asked for (`file_bytes.FETCHERS`) and not kept. So every reader works
as it does on local files, and a source of any size takes a few megabytes of disk.
"""

from __future__ import annotations

import importlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any

from checkpoint_convert.errors import (
    CheckpointError,
    DestinationError,
    UnreachableError,
    UnreadableError,
)
from checkpoint_convert.file_bytes import FETCHERS, IDENTITIES

_WHOLE_BYTES = 4 << 20
"""Files up to this size are fetched at once."""

_EDGE_BYTES = 1 << 20
"""Of larger ones so much of both ends: what tells their kind, and the directory of most archives."""

_PIECE_BYTES = 16 << 20
_TRIES = 4
_WAIT_S = 0.5
_STAMPS = (
    *("ETag", "etag", "Content-MD5", "md5Hash", "Digest", "generation", "VersionId", "version_id"),
    *("LastModified", "Last-Modified", "last_modified", "updated", "mtime", "created", "size"),
)
"""What stores say of a file's state. Where there is nothing but its size, no later run can know it again."""
_READ_WHOLE = frozenset({".metadata", ".json", ".yaml", ".yml"})


def file_system(url: str) -> tuple[Any, str]:
    """fsspec's file system for a URL, and the path in it.

    Raises:
        UnreadableError: fsspec, or what it needs for this kind of URL, is not installed.
    """
    try:
        core = importlib.import_module("fsspec.core")
        system, path = core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise UnreadableError(
            f"{url}: cannot be opened: {error}",
            hint="pip install 'fsspec[http]', s3fs, gcsfs or adlfs, as the URL needs it.",
        ) from None
    return system, str(path)


class Mirror:
    """Local stand-ins for remote sources, below one temporary folder.

    Attributes:
        names: stand-ins and the URLs they stand for.

    Args:
        staging: where to put them; the system's folder for temporary files by default.
    """

    def __init__(self, staging: Path | None = None) -> None:
        try:
            self.folder = Path(tempfile.mkdtemp(prefix="fsdp-migrate-", dir=staging))
        except OSError as error:
            raise DestinationError(
                f"{staging}: {error.strerror}", hint="Name an existing folder with --staging."
            ) from None
        self.names: dict[str, str] = {}
        self._seen: list[tuple[Any, str, dict[str, str]]] = []

    def close(self) -> None:
        """Forget the stand-ins."""
        for known in (FETCHERS, IDENTITIES):
            for path in [path for path in known if Path(path).is_relative_to(self.folder)]:
                del known[path]
        shutil.rmtree(self.folder, ignore_errors=True)

    def local(self, text: str) -> Path:
        """The stand-in of a URL; for a pattern, the same pattern in a folder of stand-ins.

        Raises:
            UnreadableError: there is nothing, or it cannot be reached.
        """
        system, root = file_system(text)
        with _told(text):
            folder = self.folder / str(len(self.names))
            folder.mkdir()
            pattern = _pattern(root)
            if pattern and not system.exists(root):
                found = dict(_matching(system, root))
                for path, info in found.items():
                    self._add(system, path, info, folder / path.removeprefix(root.removesuffix(pattern)))
                target = folder / pattern
            elif system.isdir(root):
                found = system.find(root, detail=True, withdirs=False)
                target = folder / (PurePosixPath(root.rstrip("/")).name or "root")
                target.mkdir()
                for path, info in found.items():
                    self._add(system, path, info, target / path[len(root.rstrip("/")) :].lstrip("/"))
            else:
                found = {root: system.info(root)}
                target = folder / (PurePosixPath(root).name or "file")
                self._add(system, root, found[root], target)
        if not found:
            raise UnreadableError(f"{text}: there is nothing", hint="Check the URL.")
        if target.exists():
            self.names[str(target)] = text
        else:
            self.names[str(folder)] = text.removesuffix(f"/{pattern}")
        return target

    def beside(self, text: str, path: Path, suffix: str) -> None:
        """Fetch the small file next to a URL, `<url><suffix>`, if there is one."""
        system, root = file_system(text)
        with _told(text):
            if system.exists(root + suffix):
                path.with_name(path.name + suffix).write_bytes(system.cat_file(root + suffix))

    def reads_below(self, system: Any, roots: Sequence[str]) -> bool:
        """Whether a file of a source is at one of these places, or in a folder there."""
        return any(
            path == root or path.startswith(f"{root}/")
            for source, path, _ in self._seen
            if _store(source) is _store(system)
            for root in roots
        )

    def check(self) -> None:
        """Compare with the state at the start.

        Raises:
            UnreadableError: a file changed.
        """
        for system, path, stamp in self._seen:
            system.invalidate_cache()
            with _told(path):
                now = _stamp(system.info(path))
            # A list of files may say less of each than the store says when it is asked for one.
            if any(now.get(key, value) != value for key, value in stamp.items()):
                raise UnreadableError(
                    f"{path} changed while it was being converted",
                    hint="convert again when the job that writes it has finished",
                )

    def shown(self, text: str) -> str:
        """A text with URLs in place of stand-ins."""
        for path, url in sorted(self.names.items(), reverse=True):
            text = text.replace(path, url)
        return text

    def _add(self, system: Any, path: str, info: dict[str, Any], target: Path) -> None:
        if info.get("type") == "directory":
            return
        stamp = _stamp(info)
        self._seen.append((system, path, stamp))
        if stamp.keys() - {"size"}:
            IDENTITIES[str(target)] = f"{_store(system).__name__}:{path} {stamp}"
        target.parent.mkdir(parents=True, exist_ok=True)
        size = info.get("size")
        fetch = fetcher(system, path)
        head = b"" if size is None else fetch(0, min(size, _EDGE_BYTES))
        is_small = size is None or size <= _WHOLE_BYTES or target.suffix in _READ_WHOLE
        if is_small or target.name in _READ_WHOLE or not _is_read_in_pieces(head):
            with target.open("wb") as file:
                if size is None:
                    file.write(system.cat_file(path))
                for start in range(0, size or 0, _PIECE_BYTES):
                    file.write(fetch(start, min(_PIECE_BYTES, (size or 0) - start)))
            return
        with target.open("wb") as file:
            file.truncate(size)
            file.write(head)
        FETCHERS[str(target)] = fetch


def _pattern(root: str) -> str:
    """What of a path is a pattern: from its first part with a mark on; empty where no part has one."""
    parts = root.split("/")
    first = next((n for n, part in enumerate(parts) if "*" in part or "[" in part), len(parts))
    return "/".join(parts[first:])


def _matching(system: Any, root: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The files that a pattern stands for, and those of the folders that it stands for."""
    for path in system.glob(root):
        info = system.info(path)
        if info.get("type") == "directory":
            yield from system.find(path, detail=True, withdirs=False).items()
        else:
            yield path, info


def _is_read_in_pieces(head: bytes) -> bool:
    """Whether a file's readers go to positions in it: archives, and safetensors. Old formats are walked."""
    return head.startswith(b"PK\x03\x04") or head[8:9] == b"{"


def fetcher(system: Any, path: str) -> Callable[[int, int], bytes]:
    """What reads a stretch of a remote file, given start and count; a few failures are borne."""

    def fetch(start: int, count: int) -> bytes:
        for left in range(_TRIES - 1, -1, -1):
            try:
                data = bytes(system.cat_file(path, start=start, end=start + count)) if count else b""
            except FileNotFoundError:
                raise UnreadableError(f"{path}: is gone", hint="Check the URL.") from None
            except Exception as error:  # each file system has errors of its own
                if not left:
                    raise UnreachableError(
                        f"{path}: reading at byte {start} failed: {error}",
                        hint="The server or the connection reports an error; try again.",
                    ) from None
                time.sleep(_WAIT_S * (_TRIES - left))
            else:
                if len(data) > count:  # a server that ignores ranges
                    data = data[start : start + count]
                return data
        raise AssertionError("unreachable")

    return fetch


@contextmanager
def _told(url: str) -> Iterator[None]:
    """Errors of a remote file system, in our words."""
    try:
        yield
    except CheckpointError:
        raise
    except FileNotFoundError:
        raise UnreadableError(f"{url}: there is nothing", hint="Check the URL.") from None
    except Exception as error:  # each file system has errors of its own
        raise UnreachableError(
            f"{url}: cannot be reached: {type(error).__name__}: {error}",
            hint="Check the URL, the connection and the credentials.",
        ) from None


def _store(system: Any) -> type:
    """The kind of a file system, or of the one that it caches."""
    while (inner := getattr(system, "fs", None)) is not None:
        system = inner
    return type(system)


def _stamp(info: dict[str, Any]) -> dict[str, str]:
    """What tells a file's state, as text."""
    return {key: _as_text(info[key]) for key in _STAMPS if info.get(key) not in (None, "")}


def _as_text(value: object) -> str:
    """A time is one text whether a store gives it as a time or as seconds."""
    seconds = value.timestamp() if isinstance(value, datetime) else value
    return f"{seconds:.6f}" if isinstance(seconds, float) else str(seconds)
