"""Keeps what a rank writes in its arm's shadow, and writes down what it writes or reads elsewhere.

Before a file is opened for writing below the shadow, links on the way to it that lead out are replaced: those
of directories by directories of links, that of the file itself by a copy of it. Python tells of what it is
about to do by audit events; `torch.save` and safetensors open files in native code, and are wrapped. What
other programs do that a job starts is not seen.

Relies on `sys.addaudithook` (PEP 578; events `open`, `os.mkdir`, `os.rename` ...) and renameat2(2).
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_IN_DIRECTORY = {"os.mkdir": 1, "os.remove": 1, "os.rmdir": 1, "os.rename": 2, "os.link": 2, "os.symlink": 2}
"""Events that change a directory, and how many paths they begin with."""
_OF_FILE = frozenset({"os.truncate", "os.chmod", "os.chown", "os.utime"})
_STARTS = {"subprocess.Popen": 1, "os.system": 0, "os.posix_spawn": 1, "os.spawn": 2}
"""Events before another program runs, and which argument is its command line."""
STARTED = (
    "the job starts another program ({}): what it computes, prints and writes is in no record, and what it "
    "writes through links goes to your files"
)
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
_ELSEWHERE = ("/dev/", "/proc/", "/sys/", "/run/")
_CACHES = ("/.cache/", "/.triton/", "/.config/", "/.nv/", "/__pycache__/", "/.local/", "/site-packages/")
_A_CACHE = re.compile(r"CACHE|_HOME$")
_TEMPORARY = ("tmp", "pymp-", "torch", "fsdp-migrate-", "nccl", "cuda", "joblib", "wandb", ".")
"""What names of libraries' own temporary files begin with."""
_MOST_TOLD = 20
_STANDARD = {str(subprocess.__file__), str(os.__file__), __file__}

Tell = Callable[[str, str], None]
"""Called once with "write" or "read" and a path outside of the shadow, "resume" and the checkpoint when it is
opened, or "start" and a command line."""


def apply(
    shadow: Path, records: Path, other: tuple[float, float], tell: Tell, *, checkpoint: str = ""
) -> None:
    """Watch this process and those it forks.

    Args:
        records: what is written below is ours.
        checkpoint: file or directory of which it is told that something of it was opened.
        other: when the other arm ran, in seconds since the epoch, or two zeros: a file elsewhere that was
            changed in between, and is read by this one, was likely written by that one.
    """
    files = _Files(shadow, records, other, tell)
    if checkpoint:
        files.checkpoint = (os.path.realpath(checkpoint), f"{shadow}{checkpoint}")
    sys.addaudithook(files.heed)
    import torch

    torch.save = _first(files.about_to_write, torch.save, 1)
    with contextlib.suppress(ImportError):
        import safetensors.torch

        tensors: Any = safetensors.torch
        tensors.serialize_file = _first(files.about_to_write, tensors.serialize_file, 1)


def _first(then: Callable[[Any], None], original: Any, position: int) -> Any:
    """`original`, before which `then` is called with the argument that names its file."""

    @functools.wraps(original)
    def wrapper(*arguments: Any, **keywords: Any) -> Any:
        named = (
            arguments[position] if len(arguments) > position else keywords.get("f", keywords.get("filename"))
        )
        then(named)
        return original(*arguments, **keywords)

    return wrapper


class _Files:
    """Follows what one rank does to files."""

    def __init__(self, shadow: Path, records: Path, other: tuple[float, float], tell: Tell) -> None:
        self.shadow, self.tell = f"{shadow}{os.sep}", tell
        self.since, self.until = other
        self.told: set[tuple[str, str]] = set()
        self.checkpoint: tuple[str, ...] = ()
        self.busy = False
        temporary = Path(tempfile.gettempdir()).resolve()
        libraries = [f"{temporary}{os.sep}{name}" for name in _TEMPORARY]
        caches = [value for name, value in os.environ.items() if value and _A_CACHE.search(name)]
        self.elsewhere = (self.shadow, f"{records}{os.sep}", *_ELSEWHERE, *libraries, *caches)

    def heed(self, event: str, arguments: tuple[Any, ...]) -> None:
        """The audit hook; it never raises."""
        if self.busy or not (
            event == "open" or event in _IN_DIRECTORY or event in _OF_FILE or event in _STARTS
        ):
            return
        self.busy = True
        try:
            with contextlib.suppress(OSError, ValueError):
                self._heed(event, arguments)
        finally:
            self.busy = False

    def about_to_write(self, named: Any) -> None:
        """Of a file that native code is going to open."""
        if isinstance(named, str | os.PathLike):
            self.heed("open", (named, "wb", os.O_WRONLY | os.O_TRUNC))

    def _heed(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            if isinstance(path, int) or path is None:
                return
            if flags & _WRITES:
                self._writes(_absolute(path), keep=not flags & os.O_TRUNC)
            else:
                self._reads(_absolute(path))
        elif event in _OF_FILE:
            if not isinstance(arguments[0], int):
                self._writes(_absolute(arguments[0]), keep=True)
        elif event in _STARTS:
            if _is_called_by(self.shadow):
                self._tell_once("start", _command(arguments[_STARTS[event]]).replace(self.shadow[:-1], ""))
        else:
            for path in arguments[: _IN_DIRECTORY[event]]:
                entry = _absolute(path)
                if entry.startswith(self.shadow):
                    own_path(entry, self.shadow, keep=True, is_entry=True)

    def _writes(self, path: str, *, keep: bool) -> None:
        """`keep`: whether what is in the file counts."""
        if path.startswith(self.shadow):
            own_path(path, self.shadow, keep=keep)
        real = Path(path).resolve()
        if not real.is_dir():  # a nameless file (O_TMPFILE) is opened by its directory
            self._say("write", str(real))

    def _reads(self, path: str) -> None:
        if any(_is_of(each, known) for known in self.checkpoint for each in (path, os.path.realpath(path))):
            self._tell_once("resume", self.checkpoint[0])
        if path.startswith(self.shadow):
            path = os.path.realpath(path)
        if self.until and not path.startswith(self.shadow):
            changed = os.stat(path).st_mtime  # noqa: PTH116 (called for every file that is opened)
            if self.since < changed < self.until:
                self._say("read", path)

    def _say(self, what: str, path: str) -> None:
        if not (path.startswith(self.elsewhere) or any(one in path for one in _CACHES)):
            self._tell_once(what, path)

    def _tell_once(self, what: str, path: str) -> None:
        if (what, path) not in self.told and len(self.told) < _MOST_TOLD:
            self.told.add((what, path))
            self.tell(what, path)


def _is_called_by(tree: str) -> bool:
    """Whether a file below `tree` started it, and no library for reasons of its own (`git`, `ldconfig`)."""
    frame = sys._getframe()
    while frame is not None and frame.f_code.co_filename in _STANDARD:
        frame = frame.f_back  # type: ignore[assignment]
    return frame is not None and frame.f_code.co_filename.startswith(tree)


def _is_of(path: str, known: str) -> bool:
    """Whether it is that file, or in that directory."""
    return path == known or path.startswith(known + os.sep)


def _command(line: Any) -> str:
    words = line if isinstance(line, str | bytes) else b" ".join(os.fsencode(word) for word in line)
    return os.fsdecode(words)


def _absolute(path: Any) -> str:
    return os.path.abspath(os.fsdecode(path))  # noqa: PTH100 (".." is taken by its words, as the job does)


def own_path(path: str, shadow: str, *, keep: bool, is_entry: bool = False) -> None:
    """Replace the links on the way to `path` that lead out of the shadow.

    Args:
        shadow: ends with a separator.
        keep: copy the file; else its link goes.
        is_entry: the last part is an entry that comes or goes; nothing is written through it.
    """
    at = shadow.rstrip(os.sep)
    parts = Path(path.removeprefix(shadow)).parts
    for part in parts[:-1] if is_entry else parts:
        at = f"{at}{os.sep}{part}"
        if not os.path.islink(at):  # noqa: PTH114
            continue
        if os.path.realpath(at).startswith(shadow):
            continue
        with _locked(shadow):
            if os.path.islink(at):  # noqa: PTH114
                _replace(at, keep=keep)


@contextmanager
def _locked(shadow: str) -> Iterator[None]:
    with open(shadow.rstrip(os.sep) + ".lock", "w") as lock:  # noqa: PTH123
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _replace(link: str, *, keep: bool) -> None:
    target, own = Path(link).resolve(), Path(f"{link}.{os.getpid()}.own")
    if target.is_dir():
        own.mkdir()
        for entry in target.iterdir():
            (own / entry.name).symlink_to(entry)
        _exchange(own, Path(link))
    elif keep and target.is_file():
        shutil.copy2(target, own)
        own.replace(link)
    else:
        Path(link).unlink()


def _exchange(own: Path, link: Path) -> None:
    """A directory takes a link's place: at once, or where the file system cannot, with a moment between."""
    libc = ctypes.CDLL(None, use_errno=True)
    names = os.fsencode(own), os.fsencode(link)
    if hasattr(libc, "renameat2") and not libc.renameat2(
        _AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE
    ):
        own.unlink()
        return
    link.unlink()
    own.rename(link)
