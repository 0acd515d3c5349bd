"""A planned conversion carried out: written, by one process or several, read back, reported, published."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from checkpoint_convert import journal
from checkpoint_convert.against import check_against
from checkpoint_convert.destination import REPORT_NAME, publish
from checkpoint_convert.errors import CheckpointError, DestinationError
from checkpoint_convert.model import Contents, size_bytes
from checkpoint_convert.parallel import Workers
from checkpoint_convert.planned import SINGLE_FILE, Conversion, ConvertOptions, Plan
from checkpoint_convert.progress import Progress
from checkpoint_convert.readback import Finder, beside_safetensors, check_output, in_contents, in_entries
from checkpoint_convert.report import write_report
from checkpoint_convert.source_watch import SourceWatch
from checkpoint_convert.stored_entries import stored_entries
from checkpoint_convert.transfer import Digests, transfer
from checkpoint_convert.write_options import OutputFormat, Preset
from checkpoint_convert.writers.output import Output
from checkpoint_convert.writers.safetensors import GROUPS_NAME, OPTIMIZER_NAME

Reopen = Callable[[Path], AbstractContextManager[Contents]]
"""Opens an output with the inert reader, for the read-back check."""


@dataclass(slots=True)
class Job:
    """A planned conversion under way."""

    plan: Plan
    options: ConvertOptions
    workers: Workers
    progress: Progress
    watch: SourceWatch | None
    reopen: Reopen
    digests: dict[int, Digests] = field(default_factory=dict)
    kept: bool = False
    fingerprint: str = ""

    def is_kept(self, partial: Path) -> bool:
        """Whether a killed run left a part of this very conversion."""
        self.kept = self._is_journalled and journal.is_of(partial, self._fingerprint())
        return self.kept

    @property
    def _is_journalled(self) -> bool:
        return self.watch is not None and not self.options.write.link

    def _fingerprint(self) -> str:
        if not self.fingerprint and self.watch is not None:
            self.fingerprint = journal.fingerprint(self.plan.layout, self.watch.identity)
        return self.fingerprint

    def write_all(self, partial: Path, against: Contents | None) -> Conversion:
        """What rank 0 does: all there is, or its share and what frames it; then publish."""
        options, plan = self.options, self.plan
        if self._is_journalled:
            journal.begin(partial, self._fingerprint())
            journal.compact(partial, len(plan.items.tensors))
        if not options.ranks.is_alone:
            options.ranks.invite(partial, journal.outline(plan.layout))
        with _output(plan, partial, options, anew=not self.kept and options.ranks.is_alone) as out:
            plan.layout.begin(out)
            resumed = self._write(partial, out)
            plan.layout.finish(out)
            same = None
            if against is not None:
                digests = [self.digests[number] for number in range(len(plan.items.tensors))]
                same = check_against(
                    against, plan.items, digests, self.workers, self.progress, options.write.only
                )
            if options.then is not None or not options.ranks.is_alone:
                out.settle()  # what was sent on is read from there, what was framed on other nodes
            options.ranks.meet("framed")
            self._check(partial, resumed)
            options.ranks.hand_in("checked")
            out.settle()  # the disk took in what was written while it was read back
            done = self._done(same)
            shutil.rmtree(partial / journal.WORK_NAME, ignore_errors=True)
            with out.stream(REPORT_NAME) as write:
                write_report(lambda text: write(text.encode()), done)
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
        sizes = {n: item.size_bytes for n, item in enumerate(plan.items.tensors) if n not in stands}
        share = journal.shares(sizes, ranks.size)[ranks.rank]
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
        self.digests = {**{number: one.digests for number, one in stands.items()}, **written}
        if not ranks.is_alone:
            self._meet_written(partial, out, count, stands.keys() | set(share))
        return set(stands)

    def _meet_written(self, partial: Path, out: Output, count: int, known: Collection[int]) -> None:
        """Wait for the other ranks' shares, and take note of them."""
        self.options.ranks.meet("written")
        for number, one in journal.finished(partial, count).items():
            if number not in known:
                self.digests[number] = one.digests
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
        share = journal.shares({n: items.tensors[n].size_bytes for n in numbers}, ranks.size)[ranks.rank]
        if not self.options.verify and not share:
            return
        try:
            with _reopened(partial, self.plan, self.options, self.reopen) as find:
                check_output(find, items, self.digests, self.workers, self.progress, share)
        except CheckpointError:
            journal.forget(partial)
            raise

    def _done(self, same: int | None) -> Conversion:
        write, plan = self.options.write, self.plan
        digests = tuple(self.digests[number] for number in range(len(plan.items.tensors)))
        return Conversion(
            plan.target,
            write.to,
            write.preset,
            plan.contents,
            plan.items,
            tuple(plan.files),
            digests,
            self.options.verify,
            same,
        )


@contextlib.contextmanager
def _output(plan: Plan, partial: Path, options: ConvertOptions, *, anew: bool) -> Iterator[Output]:
    out = Output(
        partial, [file.name for file in plan.files], durable=options.durable, anew=anew, then=options.then
    )
    try:
        yield out
    finally:
        out.abandon()


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
