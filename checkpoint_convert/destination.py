"""The destination: absent or complete, whatever happens.

All is written into `<dst>.partial/`, flushed, checked, and renamed. While a process writes, it holds a lock
on that directory, so a second run can tell a directory that is being written from one a killed run left.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import pickle
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from checkpoint_convert.errors import DestinationError

MARK_NAME = ".fsdp-migrate-partial"
"""Says that a `.partial` directory is ours, and may be deleted."""

REPORT_NAME = "conversion.json"
"""The report of a conversion; part of every output directory."""

_REPLACED = ".replaced"
"""Suffix under which an output that `--overwrite` replaces waits until the new one has its name."""

_LEGACY_HEAD = pickle.dumps(0x1950A86A20F9469CFC6C, protocol=2)
"""How every file begins that torch before 1.6 saved."""

NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def beside(target: Path, suffix: str) -> Path:
    """`<target><suffix>`, in the same folder, so that a rename is enough."""
    return target.with_name(target.name + suffix)


def check_free(target: Path, *, overwrite: bool, sources: tuple[Path, ...] = ()) -> None:
    """Refuse a destination that is taken, or that is (or contains) the source.

    Raises:
        DestinationError: says which, and what to do.
    """
    if target.name in ("", ".."):
        raise DestinationError(f"{target} is no name for something new", hint="name another destination")
    real = target.resolve()
    for source in sources:
        if source.exists() and (real == source.resolve() or real in source.resolve().parents):
            raise DestinationError(
                f"{target} is the source itself, or contains it", hint="name another destination"
            )
    if os.path.lexists(target) and not overwrite:
        raise DestinationError(
            f"{target} exists already", hint="name another destination, or pass --overwrite"
        )
    for taken in (target, beside(target, _REPLACED)) if os.path.lexists(target) else ():
        if not _is_replaceable(taken):
            raise DestinationError(
                f"{taken} is a {'directory' if taken.is_dir() else 'file'}, and not of a checkpoint: "
                "--overwrite leaves it alone",
                hint="remove it yourself, or name another destination",
            )
    parent = real.parent
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise DestinationError(
            f"{parent} is no directory that can be written to", hint="name another destination"
        )


def _is_replaceable(target: Path) -> bool:
    """Whether `--overwrite` may delete what is there: nothing, something empty, a link, a checkpoint."""
    if not os.path.lexists(target) or target.is_symlink():
        return True
    if not target.is_dir():
        return target.is_file() and _is_checkpoint_file(target)
    names = {entry.name for entry in target.iterdir()}
    return not names or not names.isdisjoint((REPORT_NAME, ".metadata"))


def _is_checkpoint_file(path: Path) -> bool:
    """Whether a file is empty, or what `torch.save` writes, of any age."""
    import zipfile  # only --overwrite asks

    try:
        with path.open("rb") as file:
            head = file.read(len(_LEGACY_HEAD))
        if head in (b"", _LEGACY_HEAD):
            return True
        with zipfile.ZipFile(path) as archive:
            return any(name.endswith("/data.pkl") for name in archive.namelist())
    except (OSError, zipfile.BadZipFile):
        return os.path.lexists(beside(path, f".{REPORT_NAME}"))  # one of ours, damaged since


def check_space(target: Path, needed_bytes: int) -> None:
    """Refuse to start where the file system has less room than the plan needs.

    What a killed run left counts as free: it is gone on with, or removed.

    Raises:
        DestinationError: with both numbers.
    """
    parent = target.resolve().parent
    while not parent.exists():
        parent = parent.parent
    system = os.statvfs(parent)
    free = system.f_bavail * system.f_frsize + _held_bytes(beside(target, ".partial"))
    if free < needed_bytes:
        raise DestinationError(
            f"the output needs {needed_bytes:,} bytes, and {parent} has {free:,} free",
            hint="free some space, name another destination, or write less (--only model, --dtype bfloat16)",
        )


def _held_bytes(folder: Path) -> int:
    """What a folder takes on the disk, without files that others link to.

    Where another run is writing there, files come and go while they are counted (it is told of later).
    """
    held = 0
    for path, _, names in os.walk(folder):  # which passes over what it cannot list
        for name in names:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                status = Path(path, name).lstat()
                held += status.st_blocks * 512 if status.st_nlink == 1 else 0
    return held


@contextlib.contextmanager
def partial_directory(
    target: Path, *, keep: Callable[[Path], bool] = lambda _: False, shared: bool = False
) -> Iterator[Path]:
    """`<target>.partial`, empty and locked; deleted again unless `publish` has moved it away.

    Args:
        keep: says whether what a killed run left is to be gone on with.
        shared: other processes write there too: what fails is left, marked, for a next run to go on with.

    Raises:
        DestinationError: another run is writing there, or something foreign is in the way.
    """
    partial = beside(target, ".partial")
    target.parent.mkdir(parents=True, exist_ok=True)
    with _locked(partial, keep) as (emptied, descriptor):
        failed = True
        try:
            (emptied / MARK_NAME).write_text("An unfinished conversion. Safe to delete.\n", encoding="utf-8")
            yield emptied
            failed = False
        finally:
            # Once published, the name may be another run's already.
            if not (shared and failed) and _is_same(partial, descriptor):
                shutil.rmtree(partial, ignore_errors=True)


@contextlib.contextmanager
def _locked(partial: Path, keep: Callable[[Path], bool]) -> Iterator[tuple[Path, int]]:
    """Make the directory, hold its lock, and empty it of what a killed run left, unless that is kept."""
    try:
        partial.mkdir(exist_ok=True)
        descriptor = os.open(partial, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise DestinationError(
            f"{partial} cannot be used ({error.strerror})", hint="remove it, or name another destination"
        ) from error
    try:
        _take_lock(descriptor, partial)
        held = list(partial.iterdir())
        if held and not any(entry.name in (MARK_NAME, REPORT_NAME) for entry in held):
            raise DestinationError(
                f"{partial} is in the way, and was not made by fsdp-migrate",
                hint="move it away, or name another destination",
            )
        for entry in () if held and keep(partial) else held:
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        yield partial, descriptor
    finally:
        os.close(descriptor)


def _is_same(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _take_lock(descriptor: int, partial: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise DestinationError(
            f"another conversion is writing {partial}", hint="wait for it, or name another destination"
        ) from error
    except OSError:
        return  # a file system without locks


def publish(
    partial: Path, target: Path, *, single_file: str | None, overwrite: bool, durable: bool = True
) -> None:
    """Give the finished output its name.

    Args:
        single_file: the one file of `partial` that becomes `target`, its report beside it; None: the
            directory does.
        overwrite: replace what is there. The old output is moved aside first and deleted last.
        durable: flush the directories, so that the names survive a power cut.

    Raises:
        DestinationError: something took the name in the meantime.
    """
    ready = partial / single_file if single_file else partial
    if not single_file:
        (partial / MARK_NAME).unlink()
    if durable:
        for folder in (partial, *(entry for entry in partial.iterdir() if entry.is_dir())):
            _flush_directory(folder)
    replaced = beside(target, _REPLACED)
    is_replacing = os.path.lexists(target)
    if is_replacing:
        if not overwrite:
            raise DestinationError(
                f"{target} exists already, since a moment ago",
                hint="name another destination, or pass --overwrite",
            )
        _remove(replaced)
        target.rename(replaced)
    try:
        ready.rename(target)
        if single_file:
            (partial / REPORT_NAME).replace(beside(target, f".{REPORT_NAME}"))
    except BaseException:
        if single_file and not os.path.lexists(ready) and os.path.lexists(partial / REPORT_NAME):
            target.rename(ready)  # an output and another one's report would contradict each other
        if is_replacing and not os.path.lexists(target):
            replaced.rename(target)
        raise
    if durable:
        _flush_directory(target.parent)
    if is_replacing:  # else what has that name is somebody's own, or all that a killed run left of the old
        _remove(replaced)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    elif os.path.lexists(path):
        path.unlink()


def _flush_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError:
        return  # some network file systems refuse to flush a directory
    finally:
        os.close(descriptor)
