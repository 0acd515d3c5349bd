"""A conversion from contents to files: plan, check room, write, report, read back, publish."""

from __future__ import annotations

import contextlib
import glob
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from checkpoint_convert import digest
from checkpoint_convert.against import check_against
from checkpoint_convert.destination import (
    NO_SPACE,
    REPORT_NAME,
    check_free,
    check_space,
    partial_directory,
    publish,
)
from checkpoint_convert.errors import DestinationError, IncompleteError
from checkpoint_convert.items import Items
from checkpoint_convert.model import Contents, Notice, size_bytes
from checkpoint_convert.parallel import Workers
from checkpoint_convert.plan import plan_items
from checkpoint_convert.progress import Progress, Silent
from checkpoint_convert.readback import Finder, beside_safetensors, check_output, in_contents, in_entries
from checkpoint_convert.report import write_report
from checkpoint_convert.stored_entries import stored_entries
from checkpoint_convert.tied import tied_pairs
from checkpoint_convert.transfer import Digests, transfer
from checkpoint_convert.write_options import OutputFormat, Preset, WriteOptions
from checkpoint_convert.writers.dcp_linked import LinkedDcpLayout
from checkpoint_convert.writers.joined import dcp_layout
from checkpoint_convert.writers.layout import Layout, PlannedFile
from checkpoint_convert.writers.output import Output
from checkpoint_convert.writers.safetensors import GROUPS_NAME, OPTIMIZER_NAME, SafetensorsLayout
from checkpoint_convert.writers.torch_file import TorchFileLayout

SINGLE_FILE = "checkpoint.pt"
"""Name of the one file inside `.partial` that `--to torch` publishes under the destination's name."""

Reopen = Callable[[Path], AbstractContextManager[Contents]]
"""Opens an output with the inert reader, for the read-back check."""


@dataclass(frozen=True, slots=True)
class ConvertOptions:
    """How to convert.

    Attributes:
        jobs: threads.
        verify: read the output back and compare digests.
        overwrite: replace an existing destination.
        durable: the output is on the disk before it gets its name; False leaves that to the system.
    """

    write: WriteOptions = field(default_factory=WriteOptions)
    jobs: int = 1
    verify: bool = True
    overwrite: bool = False
    durable: bool = True


@dataclass(frozen=True, slots=True)
class Plan:
    """What a conversion will do; nothing has been written.

    Attributes:
        needed_bytes: about what the output takes on disk (exact but for the closing metadata).
    """

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
    """

    target: Path
    to: OutputFormat
    preset: Preset
    source: Contents
    items: Items
    files: tuple[PlannedFile, ...]
    digests: tuple[Digests, ...]
    verified: bool
    against: int | None = None

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
    layout: Layout
    if options.write.link:
        layout = LinkedDcpLayout(items, options.write)
    elif options.write.to is OutputFormat.DCP:
        layout = dcp_layout(items, options.write)
    elif options.write.to is OutputFormat.SAFETENSORS:
        layout = SafetensorsLayout(items, options.write)
    else:
        layout = TorchFileLayout(items, SINGLE_FILE)
    needed = sum(file.size_bytes for file in layout.files) + layout.closing_bytes
    return Plan(target, items, layout, needed)


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


def convert(
    contents: Contents,
    target: Path,
    options: ConvertOptions,
    *,
    reopen: Reopen,
    watch: SourceWatch | None = None,
    against: Contents | None = None,
    progress: Progress | None = None,
) -> Conversion:
    """Write a source's contents to `target`, which is absent or complete whatever happens.

    Args:
        reopen: opens the output for the read-back check.
        watch: the source's files as they were before `contents` was opened.
        against: a reference that the source's tensors must be equal to.

    Raises:
        CheckpointError: nothing was left at `target`.
        KeyboardInterrupt: likewise.
    """
    progress = progress or Silent()
    check_free(target, overwrite=options.overwrite, sources=watch.paths if watch else ())
    plan = make_plan(contents, target, options, progress)
    check_space(target, plan.needed_bytes)
    single = SINGLE_FILE if options.write.to is OutputFormat.TORCH else None
    with contextlib.ExitStack() as stack:
        stack.enter_context(_system_errors(target))
        partial = stack.enter_context(partial_directory(target))
        out = stack.enter_context(_output(plan, partial, options))
        digests = _write(plan, out, options, progress)
        if watch:
            watch.check()
        contents.finish()
        same = None
        if against is not None:
            workers = Workers(options.jobs)
            same = check_against(against, plan.items, digests, workers, progress, options.write.only)
        if options.verify:
            with _reopened(partial, plan, options, reopen) as find:
                check_output(find, plan.items, digests, Workers(options.jobs), progress)
        done = Conversion(
            target,
            options.write.to,
            options.write.preset,
            contents,
            plan.items,
            tuple(plan.files),
            tuple(digests),
            options.verify,
            same,
        )
        out.settle()  # the disk took in what was written while it was read back
        with out.stream(REPORT_NAME) as write:
            write_report(lambda text: write(text.encode()), done)
        publish(partial, target, single_file=single, overwrite=options.overwrite, durable=options.durable)
    return done


@contextlib.contextmanager
def _reopened(partial: Path, plan: Plan, options: ConvertOptions, reopen: Reopen) -> Iterator[Finder]:
    """The output, opened like any checkpoint."""
    with contextlib.ExitStack() as stack:
        if options.write.to is OutputFormat.TORCH:
            yield in_contents(stack.enter_context(reopen(partial / SINGLE_FILE)))
        elif options.write.preset is not Preset.TORCH:
            entries = stack.enter_context(stored_entries(partial, options.write.preset))
            yield in_entries(entries, plan.items, options.write.preset)
        elif options.write.to is OutputFormat.DCP:
            yield in_contents(stack.enter_context(reopen(partial)))
        else:
            names = {file.name for file in plan.files}
            model = stack.enter_context(reopen(partial)) if names - {OPTIMIZER_NAME} else None
            state = stack.enter_context(reopen(partial / OPTIMIZER_NAME)) if OPTIMIZER_NAME in names else None
            groups = partial / GROUPS_NAME
            yield beside_safetensors(model, state, json.loads(groups.read_bytes()) if groups.exists() else [])


@contextlib.contextmanager
def _output(plan: Plan, partial: Path, options: ConvertOptions) -> Iterator[Output]:
    out = Output(partial, [file.name for file in plan.files], durable=options.durable)
    try:
        yield out
    finally:
        out.abandon()


def _write(plan: Plan, out: Output, options: ConvertOptions, progress: Progress) -> list[Digests]:
    progress.phase("writing", plan.items.read_bytes)
    plan.layout.begin(out)
    digests = transfer(plan.layout, out, Workers(options.jobs), progress)
    plan.layout.finish(out)
    return digests


@contextlib.contextmanager
def _system_errors(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in NO_SPACE:
            raise
        raise DestinationError(
            f"{error.filename or target}: {error.strerror or error}", hint="nothing was left behind"
        ) from error


class SourceWatch:
    """Notices when a source's files change while they are being read."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self.paths = tuple(found for path in paths for found in _matching(path))
        self._seen = {file: _stamp(file) for path in self.paths for file in files_below(path)}

    def check(self) -> None:
        """Compare sizes and times with those at the start.

        Raises:
            IncompleteError: a file changed.
        """
        for file, stamp in self._seen.items():
            if _stamp(file) != stamp:
                raise IncompleteError(
                    f"{file} changed while it was being converted",
                    hint="convert again when the job that writes it has finished",
                )


def _matching(path: Path) -> list[Path]:
    """The path, or what a pattern such as `ckpt/*.pt` stands for."""
    if path.exists():
        return [path]
    return sorted(map(Path, glob.glob(str(path), recursive=True)))  # noqa: PTH207 - absolute patterns too


def files_below(path: Path) -> list[Path]:
    """The files of a directory, or the file itself."""
    if path.is_dir():
        return sorted(entry for entry in path.rglob("*") if entry.is_file())
    return [path] if path.exists() else []


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns, status.st_ino
