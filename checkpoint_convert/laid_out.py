"""Outputs of very many chunks, read back at the places they were laid out with.

Opened like any checkpoint they would take more memory than they took to write: all of `.metadata` as objects.
Here its bytes are compared with those that were written, and every item is read as any archive is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeAlias

from checkpoint_convert import digest
from checkpoint_convert.file_bytes import OpenFiles
from checkpoint_convert.items import Items
from checkpoint_convert.laid_out_safetensors import check_bytes, find_in_safetensors
from checkpoint_convert.laid_out_torch_file import find_in_torch_file
from checkpoint_convert.model import TensorSource
from checkpoint_convert.readback import Finder, in_entries
from checkpoint_convert.readers.dcp_chunk import ChunkTensor, Item
from checkpoint_convert.readers.sharded import put_together
from checkpoint_convert.stored_entries import meta_entries
from checkpoint_convert.torch_item import read_item
from checkpoint_convert.values import KeyPath, dotted
from checkpoint_convert.write_options import Preset
from checkpoint_convert.writers.dcp import METADATA_NAME, DcpLayout
from checkpoint_convert.writers.joined import JoinedLayout, Section
from checkpoint_convert.writers.layout import Layout
from checkpoint_convert.writers.safetensors import SafetensorsLayout
from checkpoint_convert.writers.torch_file import TorchFileLayout

MANY_CHUNKS = 1_000
"""More than these are read back so; fewer objects of `.metadata` take a few hundredths of a second."""

Found: TypeAlias = "tuple[Finder, Callable[[int], object]]"
"""What finds values and second names by path, and tensors by number."""


def is_read_in_place(layout: Layout) -> bool:
    """Whether an output is read back where it was laid out."""
    is_possible = isinstance(layout, SafetensorsLayout | TorchFileLayout) or bool(_directories(layout))
    return is_possible and layout.chunk_count > MANY_CHUNKS


def _sections(layout: Layout) -> Sequence[Section]:
    if isinstance(layout, JoinedLayout):
        return layout.sections
    return (Section("", layout, range(len(layout.tensors)), 0),)


def _directories(layout: Layout) -> Sequence[Section]:
    return [section for section in _sections(layout) if isinstance(section.layout, DcpLayout)]


def file_digests(directory: Path, layout: Layout) -> Iterator[tuple[str, bytes]]:
    """Of DCP directories' `.metadata` and files of scalars, by name.

    Digests of tensors and values say nothing of what is around them, which the small ones consist of.

    Args:
        directory: the output; files that were sent away are read from where they are now.
    """
    with closing(OpenFiles()) as files:
        for section in _directories(layout):
            if isinstance(section.layout, DcpLayout):
                if section.layout.metadata_digest is not None:
                    yield str(Path(section.folder) / METADATA_NAME), section.layout.metadata_digest
                scalars = Path(section.folder) / section.layout.scalars_name
                if (directory / scalars).is_file():
                    yield str(scalars), digest.of_file(files, directory / scalars)


@contextmanager
def laid_out(directory: Path, layout: Layout, items: Items, preset: Preset) -> Iterator[Found]:
    """What finds things in an output that was written by `layout`.

    Raises:
        UnreadableError: a `.metadata` or a header is not what was written.
    """
    with closing(OpenFiles()) as files:
        if isinstance(layout, SafetensorsLayout):
            yield find_in_safetensors(files, directory, layout, items)
            return
        if isinstance(layout, TorchFileLayout):
            yield find_in_torch_file(files, directory / layout.files[0].name, layout, items)
            return
        beside = dict(meta_entries(files, directory)) if preset is Preset.LIGHTNING else {}
        parts = [_Directory(files, directory, section) for section in _directories(layout)]
        yield _found(parts, _home(layout), items, in_entries(beside, items, preset))


def _home(layout: Layout) -> Callable[[int], tuple[Section, int]]:
    """The part that a tensor is in, and its number there."""
    if isinstance(layout, JoinedLayout):
        return layout.home
    [whole] = _sections(layout)
    return lambda number: (whole, number)


def _found(
    parts: Sequence[_Directory],
    home: Callable[[int], tuple[Section, int]],
    items: Items,
    find_beside: Finder,
) -> Found:
    shared = items.sharing()
    values = {items.canonical(path): (part, path) for part in parts for path in part.values}

    def tensor(number: int) -> object:
        section, local = home(number)
        for part in parts:
            if part.layout is section.layout:
                return part.tensor(local)
        return find_beside(items.canonical(items.tensors[number].path))

    def find(path: KeyPath) -> object:
        if path in shared:
            return tensor(shared[path])
        if path not in values:
            return find_beside(path)
        part, own = values[path]
        return part.value(own)

    return find, tensor


class _Directory:
    """One DCP directory of an output.

    Attributes:
        values: where each plain value lies: file, offset and length.
    """

    def __init__(self, files: OpenFiles, output: Path, section: Section) -> None:
        assert isinstance(section.layout, DcpLayout)
        self.layout = section.layout
        self.values = dict(self.layout.value_places())
        self._files = files
        folder = output / section.folder
        self._paths: dict[str, Path] = {file.name: folder / file.name for file in self.layout.files}
        if self.layout.metadata_digest is not None:  # else another rank wrote it, and looks at it
            check_bytes(folder / METADATA_NAME, self.layout.metadata_digest)

    def value(self, path: KeyPath) -> object:
        """A plain value."""
        file, start, size_bytes = self.values[path]
        return read_item(self._files, self._paths[file], start, size_bytes)

    def tensor(self, number: int) -> TensorSource:
        """A tensor by its number in this directory."""
        item = self.layout.tensors[number]
        name = dotted(item.path)
        pieces: dict[tuple[int, ...], TensorSource] = {}
        for chunk in self.layout.stored_chunks(number):
            if 0 not in chunk.sizes:
                at = Item(self._paths[chunk.file], chunk.offset, chunk.length)
                pieces[chunk.offsets] = ChunkTensor(self._files, at, item.dtype, chunk.sizes, name)
        return put_together(pieces, item.dtype, item.source.shape, name)
