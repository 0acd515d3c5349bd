"""A DCP directory of very many chunks, read back at the places it was laid out with.

Opened like any checkpoint it would take more memory than it took to write: its whole `.metadata` as objects.
Here its bytes are compared with those that were written, and every item is read as any archive is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from checkpoint_convert import digest
from checkpoint_convert.errors import UnreadableError
from checkpoint_convert.file_bytes import OpenFiles
from checkpoint_convert.items import Items
from checkpoint_convert.model import BLOCK_BYTES, TensorSource
from checkpoint_convert.readback import ABSENT, Finder
from checkpoint_convert.readers.dcp import ChunkTensor, Item
from checkpoint_convert.readers.sharded import put_together
from checkpoint_convert.torch_item import read_item
from checkpoint_convert.values import KeyPath
from checkpoint_convert.write_options import Preset
from checkpoint_convert.writers.dcp import METADATA_NAME, DcpLayout
from checkpoint_convert.writers.layout import Layout

MANY_CHUNKS = 20_000
"""More than these are read back so; with fewer the objects of `.metadata` take less than 60 MiB."""


def is_read_so(layout: Layout, preset: Preset) -> bool:
    """Whether an output is read back where it was laid out."""
    return preset is Preset.TORCH and isinstance(layout, DcpLayout) and layout.chunk_count > MANY_CHUNKS


@contextmanager
def laid_out(
    directory: Path, layout: DcpLayout, items: Items
) -> Iterator[tuple[Finder, Callable[[int], TensorSource]]]:
    """What finds values and second names by path, and tensors by number.

    Raises:
        UnreadableError: `.metadata` is not what was written.
    """
    _check_metadata(directory / METADATA_NAME, layout)
    files = OpenFiles()
    paths: dict[str, Path] = {file.name: directory / file.name for file in layout.files}
    values = {items.canonical(path): place for path, place in layout.value_places()}
    shared = {items.canonical(item.path): item.of for item in items.shared}
    firsts = set(shared.values())
    numbers = {item.path: number for number, item in enumerate(items.tensors) if item.path in firsts}

    def tensor(number: int) -> TensorSource:
        item = items.tensors[number]
        name = ".".join(map(str, item.path))
        pieces: dict[tuple[int, ...], TensorSource] = {}
        for chunk in layout.stored_chunks(number):
            if 0 not in chunk.sizes:
                at = Item(paths[chunk.file], chunk.offset, chunk.length)
                pieces[chunk.offsets] = ChunkTensor(files, at, item.dtype, chunk.sizes, name)
        return put_together(pieces, item.dtype, item.source.shape, name)

    def find(path: KeyPath) -> object:
        if path in shared:
            return tensor(numbers[shared[path]])
        if path not in values:
            return ABSENT
        file, start, size_bytes = values[path]
        return read_item(files, paths[file], start, size_bytes)

    try:
        yield find, tensor
    finally:
        files.close()


def _check_metadata(path: Path, layout: DcpLayout) -> None:
    if layout.metadata_digest is None:  # another rank wrote it, and looks at it
        return
    running = digest.new()
    with path.open("rb", buffering=0) as file:
        while block := file.read(BLOCK_BYTES):
            running.update(block)
    if running.digest() != layout.metadata_digest:
        raise UnreadableError(
            f"the output failed its check after writing: {METADATA_NAME} is not what was written",
            hint="nothing was left behind; this points to a failing disk or file system",
        )
