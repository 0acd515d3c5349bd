"""The protocol between a format and the stream of bytes: where every tensor's elements go.

A format says the name and size of every file, and the place of every run of elements, before the first byte
is written. Sizes are exact, so free space can be checked, and any thread can write any run at any time.

Call order: `begin` once; then per tensor, from any thread, `spans`, and `close_span` after each span's bytes;
`finish` once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from checkpoint_convert.items import TensorItem
from checkpoint_convert.writers.output import Output


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A file of the output: its name below the destination and its exact size."""

    name: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Span:
    """A run of a tensor's elements and its place.

    Attributes:
        file: number of the file in `Layout.files`.
        offset: bytes from the start of the file to the first element.
        start, stop: elements, in row-major order.
        key, sizes: what the layout needs to close the span.
    """

    file: int
    offset: int
    start: int
    stop: int
    key: int = 0
    sizes: tuple[int, ...] = ()


class Layout(Protocol):
    """What a format decides before any byte is written."""

    @property
    def files(self) -> Sequence[PlannedFile]: ...

    @property
    def tensors(self) -> Sequence[TensorItem]: ...

    @property
    def chunk_count(self) -> int:
        """Spans of all tensors together."""
        ...

    @property
    def closing_bytes(self) -> int:
        """About the bytes that `finish` adds in further files."""
        ...

    wants_crc: bool
    """Whether `close_span` needs the CRC-32 of the span's bytes."""

    def begin(self, out: Output) -> None:
        """Write what does not depend on tensor bytes."""
        ...

    def spans(self, number: int) -> Iterator[Span]:
        """The places of tensor `number`, covering its elements once and in order."""
        ...

    def is_linked(self, number: int) -> bool:
        """Whether tensor `number` stays in a file of the source, which the output shares."""
        ...

    def close_span(self, out: Output, number: int, span: Span, crc: int) -> None:
        """The span's bytes stand in the file; write what frames them."""
        ...

    def note_done(self, out: Output, number: int, crcs: Sequence[int]) -> None:
        """Tensor `number` stands already, written and framed by another process; the CRC-32 of its spans."""
        ...

    def finish(self, out: Output) -> None:
        """All tensors stand; write what makes the output readable, last of all."""
        ...
