"""A destination behind a URL: files are sent when they are complete, and their room here is given up at once.

There is no renaming of folders in an object store, so what makes an output readable is sent last:
`.metadata`, an index, or the only file under its own name. Until then a marker says that it is unfinished.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from checkpoint_convert import digest, journal
from checkpoint_convert.destination import MARK_NAME, REPORT_NAME, beside
from checkpoint_convert.errors import (
    CheckpointError,
    DestinationError,
    IncompleteError,
    UnreachableError,
    UnreadableError,
)
from checkpoint_convert.file_bytes import FETCHERS
from checkpoint_convert.journal import WORK_NAME
from checkpoint_convert.memory_bound import SEND_BYTES
from checkpoint_convert.model import BLOCK_BYTES
from checkpoint_convert.planned import SINGLE_FILE
from checkpoint_convert.remote_source import Mirror, fetcher, file_system
from checkpoint_convert.sent_record import SentRecord
from checkpoint_convert.writers.layout import Layout

_LAST = (".metadata", "model.safetensors.index.json", "model.safetensors", "meta.pt")
"""What loaders look for, and so what is sent after everything else."""


class RemoteTarget:
    """One output on its way to a URL.

    Args:
        mirror: whose folder holds what has not been sent.
        url: where the output goes.
        is_single: the output is one file.
        shared: a folder that other ranks see as well: the output is put together there, sent when it is
            complete, and left there, for a next run to go on with, when it is not.
        bounded: send in pieces of `SEND_BYTES`, one after another; else as the store's own client likes.
    """

    def __init__(
        self,
        mirror: Mirror,
        url: str,
        *,
        is_single: bool,
        shared: Path | None = None,
        bounded: bool = False,
    ) -> None:
        self._mirror = mirror
        self._system, root = file_system(url)
        self._root = root.rstrip("/")
        self._url = url
        self._is_single = is_single
        self._is_begun = False
        self._record = SentRecord(self._system, self._root, "")
        self._mark = f"An unfinished conversion. Safe to delete.\n{os.urandom(8).hex()}\n".encode()
        self._sent: dict[Path, str] = {}
        self._size: dict[str, int] = {}
        self.is_shared = shared is not None
        self._bounded = bounded
        folder = mirror.folder / "output"
        if shared is not None:
            folder = shared / f"fsdp-migrate-to-{digest.new(url.encode()).hexdigest()[:16]}"
        self.local = folder / (self._root.rpartition("/")[2] or "output")
        folder.mkdir(exist_ok=self.is_shared)

    def check_free(self, *, overwrite: bool) -> None:
        """Refuse a URL that is taken; nothing is changed there.

        What `overwrite` replaces stays until the first file is sent.

        Raises:
            DestinationError: something is there, the source among others.
        """
        system, root = self._system, self._root
        if self._mirror.reads_below(system, self._places):
            raise DestinationError(
                f"{self._url} is the source itself, or contains it", hint="name another destination"
            )
        with _told(self._url):
            if not system.exists(root) or system.exists(f"{root}/{MARK_NAME}"):
                return
            if not overwrite:
                raise DestinationError(
                    f"{self._url} exists already", hint="name another destination, or pass --overwrite"
                )
            ours = (f"{root}/{REPORT_NAME}", f"{root}/.metadata", f"{root}.{REPORT_NAME}")
            if not any(map(system.exists, ours)):
                raise DestinationError(
                    f"{self._url} is not of a checkpoint: --overwrite leaves it alone",
                    hint="remove it yourself, or name another destination",
                )

    def _begin(self) -> None:
        """Remove what was there, and say that an output is being written."""
        if self._is_begun:
            return
        self._is_begun = True
        self._clear()
        if not self._is_single:
            self._make_parents(f"{self._root}/{MARK_NAME}")
            self._system.pipe_file(f"{self._root}/{MARK_NAME}", self._mark)

    def restore(self, partial: Path, fingerprint: str, layout: Layout) -> bool:
        """Go on with what a lost run of the same conversion sent; what another left is removed.

        Args:
            partial: the unfinished output here; gets stand-ins of what is there already.
            fingerprint: what tells the conversion from others; empty where nothing does.

        Returns:
            Whether something was there that is not here.
        """
        self._record = SentRecord(self._system, self._root, "" if self._is_single else fingerprint)
        system, root = self._system, self._root
        with _told(self._url):
            is_unfinished = system.exists(f"{root}/{MARK_NAME}")
            sent = self._record.earlier(layout, self._place) if is_unfinished else None
            if sent is None:
                if not self.is_shared and (is_unfinished or not system.exists(root)):
                    self._begin()  # else it is an output to be replaced, not before the first file is sent
                return False
            self._is_begun = True
            system.pipe_file(f"{root}/{MARK_NAME}", self._mark)
        if self.is_shared:  # the files are here as well
            self._sent = {self.local / name: self._name_of(self.local / name) for name in sent.sizes}
            return False
        for name, size in sent.sizes.items():
            path = partial / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
            self._is_there(path, self._name_of(path), size)
        journal.keep(partial, sent.finished)
        return True

    def take_back(self) -> None:
        """What lies complete in the folder that ranks share, of a run that was lost while it sent, is
        unfinished again: the same conversion has only to check and to send it."""
        partial = beside(self.local, ".partial")
        if (self.local / WORK_NAME).is_dir() and not partial.exists():
            (self.local / MARK_NAME).touch()
            self.local.rename(partial)

    def take(self, path: Path) -> None:
        """Send a complete file, and read it from there from now on."""
        if path in self._sent:  # by an earlier run; what was missing of its tensors was written once more
            self._is_there(path, self._sent[path], path.stat().st_size)
            return
        name = self._name_of(path)
        with _told(f"{self._url}: {name}"):
            self._begin()
            self._put(path, name)
            self._is_there(path, name, path.stat().st_size)
            partial = beside(self.local, ".partial")
            self._record.note(path.relative_to(partial).as_posix(), partial)

    def _is_there(self, path: Path, name: str, size_bytes: int) -> None:
        """A file was sent: it is read from there, and takes no room here."""
        self._sent[path] = name
        FETCHERS[str(path)] = fetcher(self._system, self._at(name))
        with path.open("r+b") as file:
            file.truncate(0)
            file.truncate(size_bytes)

    def _name_of(self, path: Path) -> str:
        """Where a file goes: below the root; for a time under another name where it would look complete."""
        partial = beside(self.local, ".partial")
        name = path.relative_to(partial if path.is_relative_to(partial) else self.local).as_posix()
        return f"{name}.partial" if name in (SINGLE_FILE, "model.safetensors") else name

    def _place(self, name: str) -> str:
        """Where a file of the unfinished output is."""
        return self._at(self._name_of(self.local / name))

    def _at(self, name: str) -> str:
        if name == f"{SINGLE_FILE}.partial":
            return f"{self._root}.partial"
        return f"{self._root}/{name}" if name else self._root

    def _put(self, path: Path, name: str) -> None:
        self._make_parents(self._at(name))
        if self._bounded:
            self._send_in_pieces(path, self._at(name))
        else:
            self._system.put_file(str(path), self._at(name))
        there = self._system.info(self._at(name))["size"]
        if there != path.stat().st_size:
            raise DestinationError(
                f"{self._url}: {name} has {there} bytes there, {path.stat().st_size} were sent"
            )

    def _send_in_pieces(self, path: Path, target: str) -> None:
        with path.open("rb") as source, self._system.open(target, "wb", block_size=SEND_BYTES) as sink:
            while piece := source.read(BLOCK_BYTES):
                sink.write(piece)

    def _make_parents(self, path: str) -> None:
        with contextlib.suppress(NotImplementedError, PermissionError):  # a store without folders
            self._system.makedirs(path.rpartition("/")[0], exist_ok=True)

    def commit(self) -> None:
        """The output is checked: send what is left, in the order that makes it readable last.

        Raises:
            DestinationError: it could not be sent.
        """
        with _told(self._url):
            self._begin()
            self._check_ours()
            if self._is_single:
                if self.is_shared:
                    self._put(self.local, f"{SINGLE_FILE}.partial")
                self._system.mv(f"{self._root}.partial", self._root)
                self._system.put_file(
                    str(beside(self.local, f".{REPORT_NAME}")), f"{self._root}.{REPORT_NAME}"
                )
                self._forget_shared()
                return
            sent = {name.removesuffix(".partial") for name in self._sent.values()}
            left = [
                path
                for path in self.local.rglob("*")
                if path.is_file() and WORK_NAME not in path.relative_to(self.local).parts
            ]
            left = [path for path in left if path.relative_to(self.local).as_posix() not in sent]
            for path in sorted(left, key=lambda path: (path.name in _LAST, path)):
                name = path.relative_to(self.local).as_posix()
                self._put(path, name)
                if self.is_shared:
                    self._record.note(name, self.local)
            for name in self._sent.values():
                if name.endswith(".partial"):
                    self._system.mv(self._at(name), self._at(name).removesuffix(".partial"))
            self._record.remove()
            self._system.rm_file(f"{self._root}/{MARK_NAME}")
        self._forget_shared()

    def _forget_shared(self) -> None:
        if self.is_shared:
            shutil.rmtree(self.local.parent, ignore_errors=True)

    def _check_ours(self) -> None:
        """Notice that another conversion to the same URL removed what this one sent."""
        self._system.invalidate_cache()
        mark = f"{self._root}/{MARK_NAME}"
        if self._is_single or (self._system.exists(mark) and self._system.cat_file(mark) == self._mark):
            return
        self._is_begun = False  # what is there is not ours to remove
        raise DestinationError(
            f"{self._url} was taken by another conversion", hint="wait for it, or name another destination"
        )

    def give_up(self, error: BaseException) -> None:
        """Remove what was sent, unless a run after this one can go on with it: that says the error then."""
        if not self._is_begun:
            return
        # Bytes that are not what they should be, here or in the source, are nothing to go on from.
        is_wrong = isinstance(error, UnreadableError | IncompleteError)
        if not self._record.stands or (is_wrong and not isinstance(error, UnreachableError)):
            with contextlib.suppress(Exception):
                self._clear()
        elif isinstance(error, CheckpointError):
            kept = f"what arrived at {self._url} stays there: run the same command again to go on from it"
            error.hint = f"{error.hint}; {kept}" if error.hint else kept

    @property
    def _places(self) -> tuple[str, str, str]:
        """All that an output may be, and that is removed for one."""
        return self._root, f"{self._root}.partial", f"{self._root}.{REPORT_NAME}"

    def _clear(self) -> None:
        system = self._system
        system.invalidate_cache()
        for path in self._places:
            if system.exists(path):
                system.rm(path, recursive=system.isdir(path))
        system.invalidate_cache()


@contextlib.contextmanager
def _told(url: str) -> Iterator[None]:
    """Errors of a remote file system, in our words."""
    try:
        yield
    except DestinationError:
        raise
    except Exception as error:  # each file system has errors of its own
        raise DestinationError(
            f"{url}: cannot be written: {type(error).__name__}: {error}",
            hint="check the URL, the connection and the credentials",
        ) from None
