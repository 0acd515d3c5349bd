"""Where checkpoints are: paths as they are, URLs by stand-ins that are gone when the command ends."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from checkpoint_convert.urls import path_of

if TYPE_CHECKING:
    from checkpoint_convert.convert import ConvertOptions
    from checkpoint_convert.remote_source import Mirror
    from checkpoint_convert.remote_target import RemoteTarget


@dataclass(slots=True)
class Target:
    """A destination: its local path, and what sends it on where that is a stand-in."""

    path: Path
    options: ConvertOptions
    remote: RemoteTarget | None = None

    @contextmanager
    def open(self) -> Iterator[ConvertOptions]:
        """What to convert with; at the end, what was converted is where it should be."""
        remote = self.remote
        if remote is None:
            yield self.options
            return
        try:
            if remote.is_shared:
                yield from self._by_ranks(remote)
                return
            remote.check_free(overwrite=self.options.overwrite)
            yield replace(self.options, then=remote.take, restore=remote.restore, durable=False)
            remote.commit()
        except BaseException as error:
            remote.give_up(error)
            raise

    def _by_ranks(self, remote: RemoteTarget) -> Iterator[ConvertOptions]:
        """Ranks write the output to a folder they share; rank 0 sends it when it is complete."""
        is_first = self.options.ranks.is_first
        if is_first:
            remote.check_free(overwrite=self.options.overwrite)
            remote.take_back()
        # What stands there still is ours: of another conversion, or one file, lost while it was sent.
        yield replace(self.options, overwrite=True, durable=False, keep_journal=True, restore=remote.restore)
        if is_first:
            remote.commit()


@dataclass(slots=True)
class StandIns:
    """The local names of what a command was given.

    Attributes:
        staging: the folder for stand-ins; the system's own by default.
    """

    staging: Path | None = None
    _mirror: Mirror | None = None
    _known: dict[str, Path] = field(default_factory=dict)

    def local(self, text: str) -> Path:
        """The path of a source; a URL's stand-in.

        Raises:
            UnreadableError: a URL that leads nowhere.
        """
        path = path_of(text)
        if path is not None:
            return path
        if text not in self._known:
            self._known[text] = self._mirrored().local(text)
        return self._known[text]

    def beside(self, text: str, suffix: str) -> None:
        """Fetch what stands beside a URL as well."""
        if path_of(text) is None:
            self._mirrored().beside(text, self.local(text), suffix)

    def target(self, text: str, options: ConvertOptions) -> Target:
        """A destination.

        Raises:
            UnsupportedError: linked files for a URL; ranks of several processes without a folder they share.
        """
        path = path_of(text)
        if path is not None:
            return Target(path, options)
        from checkpoint_convert.errors import UnsupportedError
        from checkpoint_convert.remote_target import RemoteTarget
        from checkpoint_convert.write_options import OutputFormat

        if options.write.link:
            raise UnsupportedError(
                f"{text}: --link shares files within one file system, which a store behind a URL is none of",
                hint="convert to a path beside the source, or leave --link out",
            )
        if not options.ranks.is_alone and self.staging is None:
            raise UnsupportedError(
                f"{text}: ranks of torchrun put an output for a URL together in a folder that all see",
                hint="name one with --staging; it takes the whole output until that is sent",
            )
        is_single = options.write.to is OutputFormat.TORCH
        shared = None if options.ranks.is_alone else self.staging
        bounded = options.max_memory is not None
        remote = RemoteTarget(self._mirrored(), text, is_single=is_single, shared=shared, bounded=bounded)
        self._mirrored().names[str(remote.local)] = text
        return Target(remote.local, options, remote)

    def check(self) -> None:
        """See `SourceWatch`: no remote source has changed."""
        if self._mirror is not None:
            self._mirror.check()

    def shown(self, text: str) -> str:
        """A text with URLs in place of their stand-ins."""
        return text if self._mirror is None else self._mirror.shown(text)

    def writer(self, write: Callable[[str], object]) -> Callable[[str], object]:
        """The same for what is printed."""
        return lambda text: write(self.shown(text))

    def close(self) -> None:
        """Remove the stand-ins."""
        if self._mirror is not None:
            self._mirror.close()

    def _mirrored(self) -> Mirror:
        if self._mirror is None:
            from checkpoint_convert.remote_source import Mirror

            self._mirror = Mirror(self.staging)
        return self._mirror


@contextmanager
def stand_ins(staging: Path | None = None) -> Iterator[StandIns]:
    """Stand-ins for the time of a command; its errors name what the user named.

    Names and places of hundreds of thousands of tensors are made, none of them in cycles: looking for cycles
    among them would take a fifth of the time, and is left until the end.
    """
    from checkpoint_convert.errors import CheckpointError

    places = StandIns(staging)
    collects = gc.isenabled()
    gc.disable()
    try:
        yield places
    except CheckpointError as error:
        error.message, error.hint = places.shown(error.message), places.shown(error.hint)
        error.args = (error.message,)
        raise
    finally:
        if collects:
            gc.enable()
        places.close()
