"""The files of a source as they were when a conversion began: they may not change until it has ended."""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterable
from pathlib import Path

from checkpoint_convert.errors import IncompleteError
from checkpoint_convert.file_bytes import IDENTITIES


class SourceWatch:
    """Notices when a source's files change while they are being read.

    Args:
        asked: how they are understood: the options of the reader, as text.
        also: a further check of the same kind.
    """

    def __init__(
        self, paths: Iterable[Path], asked: str = "", also: Callable[[], None] = lambda: None
    ) -> None:
        self._asked = asked
        self._also = also
        self.paths = tuple(found for path in paths for found in _matching(path))
        self._seen = {file: _stamp(file) for path in self.paths for file in files_below(path)}

    @property
    def identity(self) -> str:
        """The files and the state they are in, as text."""
        files = (IDENTITIES.get(str(path), f"{path}:{stamp}") for path, stamp in self._seen.items())
        return "\n".join([self._asked, *files])

    def check(self) -> None:
        """Compare sizes and times with those at the start.

        Raises:
            IncompleteError: a file changed.
        """
        self._also()
        for file, stamp in self._seen.items():
            if _stamp(file) != stamp:
                raise IncompleteError(
                    f"{file} changed while it was being converted",
                    hint="convert again when the job that writes it has finished",
                )


def _matching(path: Path) -> list[Path]:
    """The path, or what a pattern such as `ckpt/*.pt` stands for."""
    if path.exists():
        return [path]
    return sorted(map(Path, glob.glob(str(path), recursive=True)))  # noqa: PTH207 - absolute patterns too


def files_below(path: Path) -> list[Path]:
    """The files of a directory, or the file itself."""
    if path.is_dir():
        return sorted(entry for entry in path.rglob("*") if entry.is_file())
    return [path] if path.exists() else []


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns, status.st_ino
