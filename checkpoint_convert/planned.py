"""A conversion before it is carried out, and what is known of it afterwards."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from checkpoint_convert import digest
from checkpoint_convert.items import Items
from checkpoint_convert.model import Contents, Notice, size_bytes
from checkpoint_convert.plan import plan_items
from checkpoint_convert.progress import Progress, Silent
from checkpoint_convert.ranks import Ranks
from checkpoint_convert.tied import tied_pairs
from checkpoint_convert.transfer import DigestTable
from checkpoint_convert.values import dotted
from checkpoint_convert.write_options import OutputFormat, Preset, WriteOptions
from checkpoint_convert.writers.layout import Layout, PlannedFile

SINGLE_FILE = "checkpoint.pt"
"""Name of the one file inside `.partial` that `--to torch` publishes under the destination's name."""


_ROW_BYTES = 120
"""Of the report, per tensor: its dtype, shape and digest."""


@dataclass(frozen=True, slots=True)
class ConvertOptions:
    """How to convert.

    Attributes:
        jobs: threads.
        verify: read the output back and compare digests.
        overwrite: replace an existing destination.
        durable: the output is on the disk before it gets its name; False leaves that to the system.
        max_memory: bytes the process may take; threads are given up for it. None: as much as it takes.
        ranks: the processes that share the work.
        then: takes each file as soon as it is complete, to send it on.
        keep_journal: leave the journal in the output, which is not at its last place yet.
        restore: given the unfinished output, what tells this conversion from others, and its layout, puts
            back what a lost run of the same has sent on; says whether there was something.
    """

    write: WriteOptions = field(default_factory=WriteOptions)
    jobs: int = 1
    verify: bool = True
    overwrite: bool = False
    durable: bool = True
    max_memory: int | None = None
    ranks: Ranks = field(default_factory=Ranks)
    then: Callable[[Path], None] | None = None
    keep_journal: bool = False
    restore: Callable[[Path, str, Layout], bool] | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What a conversion will do; nothing has been written.

    Attributes:
        needed_bytes: about what the output takes on disk (exact but for the closing metadata and the report).
    """

    contents: Contents
    target: Path
    items: Items
    layout: Layout
    needed_bytes: int

    @property
    def files(self) -> Sequence[PlannedFile]:
        """The files that will hold tensors."""
        return self.layout.files


@dataclass(frozen=True, slots=True)
class Conversion:
    """What was done.

    Attributes:
        source: the contents' description; its tensors can be read only while the source is open.
        digests: by number of `items.tensors`.
        verified: the output was read back and is equal.
        against: tensors that are equal to those of the reference of `--against`; None without one.
        file_digests: of small files that are looked at as a whole later, by name.
    """

    target: Path
    to: OutputFormat
    preset: Preset
    source: Contents
    items: Items
    files: tuple[PlannedFile, ...]
    digests: DigestTable
    verified: bool
    against: int | None = None
    file_digests: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def notices(self) -> tuple[Notice, ...]:
        """What the user should know."""
        return self.items.notices


def make_plan(
    contents: Contents, target: Path, options: ConvertOptions, progress: Progress | None = None
) -> Plan:
    """Lay out a conversion. Reads tensor bytes only of tied parameters that the source holds twice.

    Raises:
        CheckpointError: the source cannot become what was asked for.
    """
    unequal = _unequal_ties(contents, progress or Silent())
    items = plan_items(contents, options.write, unequal_ties=unequal)
    layout = _layout(items, options.write)
    needed = sum(file.size_bytes for file in layout.files) + layout.closing_bytes + _report_bytes(items)
    return Plan(contents, target, items, layout, needed)


def _report_bytes(items: Items) -> int:
    """About the size of the report, and at least what the journal takes until then."""
    shared = sum(len(dotted(alias.path)) for alias in items.shared)
    names = sum(len(dotted(item.path)) for item in items.tensors) + shared
    return 1024 + names + _ROW_BYTES * (len(items.tensors) + len(items.shared))


def _layout(items: Items, options: WriteOptions) -> Layout:
    """Where things go; of the writers, the one that is asked for is imported."""
    if options.link:
        from checkpoint_convert.writers.dcp_linked import LinkedDcpLayout

        return LinkedDcpLayout(items, options)
    if options.to is OutputFormat.DCP:
        from checkpoint_convert.writers.joined import dcp_layout

        return dcp_layout(items, options)
    if options.to is OutputFormat.SAFETENSORS:
        from checkpoint_convert.writers.safetensors import SafetensorsLayout

        return SafetensorsLayout(items, options)
    from checkpoint_convert.writers.torch_file import TorchFileLayout

    return TorchFileLayout(items, SINGLE_FILE)


def _unequal_ties(contents: Contents, progress: Progress) -> list[str]:
    pairs = list(tied_pairs(contents))
    if not pairs:
        return []
    progress.phase("comparing tied", sum(size_bytes(contents.model[name]) for name, _ in pairs))
    unequal: list[str] = []
    for name, first in pairs:
        one, other = contents.model[name], contents.model[first]
        same = (one.dtype, one.shape) == (other.dtype, other.shape)
        if not same or digest.of_tensor(one) != digest.of_tensor(other):
            unequal.append(name)
        progress.advance(size_bytes(one))
    return unequal
