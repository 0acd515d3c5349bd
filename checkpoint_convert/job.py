"""A planned conversion carried out: written, by one process or several, read back, reported, published."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from checkpoint_convert import journal
from checkpoint_convert.destination import REPORT_NAME, publish
from checkpoint_convert.errors import CheckpointError, DestinationError
from checkpoint_convert.model import Contents, size_bytes
from checkpoint_convert.parallel import Workers
from checkpoint_convert.planned import SINGLE_FILE, Conversion, ConvertOptions, Plan
from checkpoint_convert.progress import Progress
from checkpoint_convert.readback import Finder, beside_safetensors, check_output, in_contents, in_entries
from checkpoint_convert.report import write_report
from checkpoint_convert.source_watch import SourceWatch
from checkpoint_convert.transfer import DigestTable, transfer
from checkpoint_convert.write_options import OutputFormat
from checkpoint_convert.writers.output import Output

if TYPE_CHECKING:
    from checkpoint_convert.reopened import Reopen

_Found: TypeAlias = "tuple[Finder, Callable[[int], object] | None]"
"""What finds things in an output by path, and, where there is a shorter way, its tensors by number."""


@dataclass(slots=True)
class Job:
    """A planned conversion under way."""

    plan: Plan
    options: ConvertOptions
    workers: Workers
    progress: Progress
    watch: SourceWatch | None
    reopen: Reopen
    digests: DigestTable = field(init=False)
    kept: bool = False
    _outline: str = ""
    _fingerprint: str = ""

    def is_kept(self, partial: Path) -> bool:
        """Whether a killed run left a part of this very conversion."""
        self.kept = self._is_journalled and journal.is_of(partial, self.fingerprint())
        return self.kept

    @property
    def _is_journalled(self) -> bool:
        return self.watch is not None and not self.options.write.link

    @property
    def outline(self) -> str:
        """What of the plan all ranks must agree on."""
        self._outline = self._outline or journal.outline(self.plan.layout)
        return self._outline

    def fingerprint(self) -> str:
        """What tells this conversion from others; nothing where no files are watched."""
        if not self._fingerprint and self.watch is not None:
            self._fingerprint = journal.fingerprint(self.plan.layout, self.outline, self.watch.identity)
        return self._fingerprint

    def write_all(self, partial: Path, against: Contents | None) -> Conversion:
        """What rank 0 does: all there is, or its share and what frames it; then publish."""
        options, plan = self.options, self.plan
        if options.restore is not None:
            self.kept |= options.restore(partial, self.fingerprint(), plan.layout)
        if self._is_journalled:
            journal.begin(partial, self.fingerprint())
            journal.compact(partial, len(plan.items.tensors))
        if not options.ranks.is_alone:
            options.ranks.invite(partial, self.outline)
        with _output(plan, partial, options, anew=not self.kept and options.ranks.is_alone) as out:
            plan.layout.begin(out)
            resumed = self._write(partial, out)
            plan.layout.finish(out)
            same = None
            if against is not None:
                from checkpoint_convert.against import check_against

                same = check_against(
                    against, plan.items, self.digests, self.workers, self.progress, options.write.only
                )
            if options.then is not None or not options.ranks.is_alone:
                out.settle()  # what was sent on is read from there, what was framed on other nodes
            options.ranks.meet("framed")
            self._check(partial, resumed)
            options.ranks.hand_in("checked")
            out.settle()  # the disk took in what was written while it was read back
            done = self._done(partial, same)
            if not options.keep_journal:
                shutil.rmtree(partial / journal.WORK_NAME, ignore_errors=True)
            with out.stream(REPORT_NAME) as write:
                write_report(lambda text: write(text.encode()), done)
            out.settle()
        single = SINGLE_FILE if options.write.to is OutputFormat.TORCH else None
        publish(
            partial, plan.target, single_file=single, overwrite=options.overwrite, durable=options.durable
        )
        return done

    def write_share(self, partial: Path) -> None:
        """What another rank does."""
        with _output(self.plan, partial, self.options, anew=False) as out:
            resumed = self._write(partial, out)
            out.settle()
            self.options.ranks.meet("framed")
            self._check(partial, resumed)
            self.options.ranks.hand_in("checked")

    def _write(self, partial: Path, out: Output) -> set[int]:
        """Write this rank's share; all digests are known afterwards. Returns what an earlier run wrote."""
        plan, ranks = self.plan, self.options.ranks
        count = len(plan.items.tensors)
        stands = journal.kept(partial, count) if self._is_journalled else {}
        missing = [number for number in range(count) if number not in stands] if stands else range(count)
        share = journal.shares(missing, self._size_of, ranks.size)[ranks.rank]
        self.progress.phase("writing", sum(size_bytes(plan.items.tensors[n].source) for n in share))
        if ranks.is_first:
            for number, one in stands.items():
                plan.layout.note_done(out, number, one.crcs)
        with journal.keeping(partial, plan.layout, enabled=self._is_journalled) as note:
            written = transfer(plan.layout, out, self.workers, self.progress, share, note)
        if not ranks.is_first:
            out.close_rest([file.size_bytes for file in plan.files])
        if self.watch:
            self.watch.check()
        plan.contents.finish()
        self.digests = written
        for number, one in stands.items():
            written.put(number, one.digests)
        if not ranks.is_alone:
            self._meet_written(partial, out, count, stands.keys() | set(share))
        return set(stands)

    def _meet_written(self, partial: Path, out: Output, count: int, known: Collection[int]) -> None:
        """Wait for the other ranks' shares, and take note of them."""
        self.options.ranks.meet("written")
        for number, one in journal.finished(partial, count).items():
            if number not in known:
                self.digests.put(number, one.digests)
                if self.options.ranks.is_first:
                    self.plan.layout.note_done(out, number, one.crcs)
        if len(self.digests) < count:
            raise DestinationError(
                f"of {count - len(self.digests)} tensors that other ranks wrote nothing is known here",
                hint="run the same command again: what is finished is kept",
            )

    def _check(self, partial: Path, resumed: set[int]) -> None:
        """Read the output back: this rank's share of it; what an earlier run wrote in any case."""
        items, ranks = self.plan.items, self.options.ranks
        numbers = range(len(items.tensors)) if self.options.verify else sorted(resumed)
        share = journal.shares(numbers, self._size_of, ranks.size)[ranks.rank]
        if not self.options.verify and not share:
            return
        try:
            with _found(partial, self.plan, self.options, self.reopen) as (find, tensor):
                check_output(find, items, self.digests, self.workers, self.progress, share, tensor)
        except CheckpointError:
            journal.forget(partial)
            raise

    def _size_of(self, number: int) -> int:
        return self.plan.items.tensors[number].size_bytes

    def _done(self, partial: Path, same: int | None) -> Conversion:
        from checkpoint_convert.laid_out import file_digests

        write, plan = self.options.write, self.plan
        return Conversion(
            plan.target,
            write.to,
            write.preset,
            plan.contents,
            plan.items,
            tuple(plan.files),
            self.digests,
            self.options.verify,
            same,
            dict(file_digests(partial, plan.layout)),
        )


@contextlib.contextmanager
def _output(plan: Plan, partial: Path, options: ConvertOptions, *, anew: bool) -> Iterator[Output]:
    names, sizes = [file.name for file in plan.files], [file.size_bytes for file in plan.files]
    out = Output(partial, names, durable=options.durable, anew=anew, then=options.then, sizes=sizes)
    try:
        yield out
    finally:
        out.abandon()


@contextlib.contextmanager
def _found(partial: Path, plan: Plan, options: ConvertOptions, reopen: Reopen) -> Iterator[_Found]:
    """The output, opened like any checkpoint, or read where it was laid out."""
    from checkpoint_convert import laid_out
    from checkpoint_convert.reopened import Beside, Entries, Whole, reopened

    write = options.write
    if laid_out.is_read_in_place(plan.layout):
        with laid_out.laid_out(partial, plan.layout, plan.items, write.preset) as found:
            yield found
        return
    target = partial / SINGLE_FILE if write.to is OutputFormat.TORCH else partial
    names = {file.name for file in plan.files}
    with reopened(target, write.to, write.preset, names, reopen) as output:
        match output:
            case Whole(contents):
                yield in_contents(contents), None
            case Entries(by_place):
                yield in_entries(by_place, plan.items, write.preset), None
            case Beside(model, optimizer, groups):
                yield beside_safetensors(model, optimizer, groups), None
