"""An output of several parts, each laid out by itself: two directories, or a directory and a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from checkpoint_convert.items import Items, TensorItem
from checkpoint_convert.places import META_NAME, MODEL_FOLDER, OPTIM_FOLDER, torchtitan_places
from checkpoint_convert.write_options import Preset, WriteOptions
from checkpoint_convert.writers.dcp import DcpLayout
from checkpoint_convert.writers.layout import Layout, PlannedFile, Span
from checkpoint_convert.writers.output import Output


@dataclass(frozen=True, slots=True)
class Section:
    """A part of an output.

    Attributes:
        folder: where its files are, below the output; empty for the output itself.
        numbers: of its tensors, in the whole.
        first_file: the number its first file has in the whole.
    """

    folder: str
    layout: Layout
    numbers: Sequence[int]
    first_file: int

    def within(self, out: Output) -> Output:
        """The output as this part sees it."""
        return out.within(self.folder, self.first_file)


class JoinedLayout:
    """Several layouts as one; see `Layout`."""

    def __init__(self, items: Items, parts: Sequence[tuple[str, Sequence[int], Layout]]) -> None:
        self._items = items
        self.sections: list[Section] = []
        first = 0
        for folder, numbers, layout in parts:
            self.sections.append(Section(folder, layout, numbers, first))
            first += len(layout.files)
        self._home = {
            number: (section, local)
            for section in self.sections
            for local, number in enumerate(section.numbers)
        }
        self.wants_crc = any(section.layout.wants_crc for section in self.sections)

    @property
    def files(self) -> Sequence[PlannedFile]:
        """All parts' files."""
        return [
            PlannedFile(f"{section.folder}/{file.name}" if section.folder else file.name, file.size_bytes)
            for section in self.sections
            for file in section.layout.files
        ]

    @property
    def tensors(self) -> Sequence[TensorItem]:
        """The tensors to write."""
        return self._items.tensors

    @property
    def chunk_count(self) -> int:
        """Of all parts."""
        return sum(section.layout.chunk_count for section in self.sections)

    @property
    def closing_bytes(self) -> int:
        """Of all parts."""
        return sum(section.layout.closing_bytes for section in self.sections)

    def begin(self, out: Output) -> None:
        """See `Layout`."""
        for section in self.sections:
            section.layout.begin(section.within(out))

    def home(self, number: int) -> tuple[Section, int]:
        """The part that a tensor is in, and its number there."""
        return self._home[number]

    def spans(self, number: int) -> Iterator[Span]:
        """See `Layout`."""
        section, local = self._home[number]
        for span in section.layout.spans(local):
            yield replace(span, file=span.file + section.first_file)

    def is_linked(self, number: int) -> bool:
        """See `Layout`."""
        section, local = self._home[number]
        return section.layout.is_linked(local)

    def close_span(self, out: Output, number: int, span: Span, crc: int) -> None:
        """See `Layout`."""
        section, local = self._home[number]
        inside = replace(span, file=span.file - section.first_file)
        section.layout.close_span(section.within(out), local, inside, crc)

    def note_done(self, out: Output, number: int, crcs: Sequence[int]) -> None:
        """See `Layout`."""
        section, local = self._home[number]
        section.layout.note_done(section.within(out), local, crcs)

    def finish(self, out: Output) -> None:
        """See `Layout`; the last part is what makes the whole a checkpoint."""
        for section in self.sections:
            section.layout.finish(section.within(out))


def dcp_layout(items: Items, options: WriteOptions) -> Layout:
    """The DCP directory, or directories, that the loader of `options.preset` reads."""
    if options.preset is Preset.TORCHTITAN:
        return DcpLayout(items, options, places=torchtitan_places(items))
    if options.preset is Preset.ACCELERATE:
        return JoinedLayout(items, _accelerate(items, options))
    if options.preset is Preset.LIGHTNING:
        roots = {items.model_key, items.optim_key}
        tops = {str(item.path[0]) for item in items.tensors} | {str(leaf.path[0]) for leaf in items.objects}
        numbers, trained = _those(items, roots)
        rest, extras = _those(items, tops - roots)
        from checkpoint_convert.writers.torch_file import TorchFileLayout

        meta: Layout = TorchFileLayout(extras, META_NAME)
        return JoinedLayout(items, [("", numbers, DcpLayout(trained, options)), ("", rest, meta)])
    return DcpLayout(items, options)


def _accelerate(items: Items, options: WriteOptions) -> list[tuple[str, Sequence[int], Layout]]:
    parts: list[tuple[str, Sequence[int], Layout]] = []
    for folder, key in ((MODEL_FOLDER, items.model_key), (OPTIM_FOLDER, items.optim_key)):
        numbers, part = _those(items, {key})
        if part.tensors or part.objects:
            parts.append((folder, numbers, DcpLayout(part, options)))
    return parts


def _those(items: Items, roots: set[str]) -> tuple[list[int], Items]:
    """The items below some top-level keys, and the numbers their tensors have in the whole."""
    numbers = [number for number, item in enumerate(items.tensors) if item.path[0] in roots]
    part = replace(
        items,
        tensors=tuple(items.tensors[number] for number in numbers),
        shared=tuple(item for item in items.shared if item.path[0] in roots),
        objects=tuple(leaf for leaf in items.objects if leaf.path[0] in roots),
    )
    return numbers, part
