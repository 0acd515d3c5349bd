"""The door of the readers: from paths to `Contents`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from checkpoint_convert.checksum import Checksum
from checkpoint_convert.errors import UnreadableError
from checkpoint_convert.file_bytes import OpenFiles, read_blocks
from checkpoint_convert.model import Contents
from checkpoint_convert.readers.detect import detect
from checkpoint_convert.readers.options import ReadOptions
from checkpoint_convert.torch_file import TorchFile

__all__ = ["ReadOptions", "open_source"]


@contextmanager
def open_source(paths: Sequence[Path], options: ReadOptions | None = None) -> Iterator[Contents]:
    """Everything a source holds, tensors left in place until their bytes are asked for.

    Args:
        paths: files, directories, globs; model and optimizer may come as separate ones.

    Raises:
        CheckpointError: the source cannot be read, is incomplete, or leaves something open that `options`
            does not answer; the message says which.
    """
    files = OpenFiles()
    try:
        sources: list[TorchFile] = []
        contents = detect(files, paths, options or ReadOptions(), sources)
        yield replace(contents, finish=lambda: _finish(files, sources))
    finally:
        files.close()


def _finish(files: OpenFiles, sources: Sequence[TorchFile]) -> None:
    """Read what no tensor covers (padding) of the records that were read, so that their CRCs are verified."""
    for source in sources:
        for storage in source.storages:
            checksum: Checksum | None = storage.checksum
            for start, stop in checksum.unseen() if checksum is not None else ():
                if stop > storage.position + storage.size_bytes:
                    raise UnreadableError(f"{source.path}: a record grew while it was read")
                for _ in read_blocks(files, source.path, start, stop - start, checksum):
                    pass
