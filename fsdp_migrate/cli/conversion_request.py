"""One call of `convert-ckpt`, options understood: plan or convert, and print what came of it."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from fsdp_migrate.cli.places import StandIns, stand_ins
from fsdp_migrate.cli.source_options import ReportFormat
from fsdp_migrate.exit_codes import ExitCode

if TYPE_CHECKING:
    from checkpoint_convert.convert import ConvertOptions
    from checkpoint_convert.model import Contents
    from checkpoint_convert.readers.options import ReadOptions
    from checkpoint_convert.source_watch import SourceWatch


class Request:
    """One call of the command: sources and destination as the user wrote them, and all that was asked for."""

    def __init__(
        self,
        sources: list[str],
        destination: str,
        read: ReadOptions,
        options: ConvertOptions,
        against: str | None,
        staging: Path | None,
        report: ReportFormat,
        dry_run: bool,
        asked: bool,
    ) -> None:
        self._sources = sources
        self._destination = destination
        self._read = read
        self._options = options
        self._against = against
        self._staging = staging
        self._json = report is ReportFormat.JSON
        self._dry_run = dry_run
        self._asked = asked or against is not None

    def run(self, *, strict: bool) -> ExitCode:
        """Convert, or print the plan."""
        from checkpoint_convert.readers.open import open_source
        from checkpoint_convert.source_watch import SourceWatch

        with stand_ins(self._staging) as places:
            sources = [places.local(text) for text in self._sources]
            watch = SourceWatch(sources, places.shown(repr(self._read)), also=places.check)
            with open_source(sources, self._read) as contents:
                if self._nothing_to_do(contents):
                    if self._options.ranks.is_first:
                        self._say_loadable(places)
                    return ExitCode.OK
                if self._dry_run:
                    if not self._options.ranks.is_first:
                        return ExitCode.OK
                    notices = self._print_plan(contents, places)
                else:
                    notices = self._convert(contents, watch, places)
        return ExitCode.NEEDS_YOU if strict and notices else ExitCode.OK

    def _nothing_to_do(self, contents: Contents) -> bool:
        return contents.loadable_as_is and not self._asked and not needs_options(contents)

    def _say_loadable(self, places: StandIns) -> None:
        from fsdp_migrate.reports import conversion

        sources = [places.local(text) for text in self._sources]
        print(conversion.loadable_json() if self._json else places.shown(conversion.loadable_text(sources)))

    def _print_plan(self, contents: Contents, places: StandIns) -> int:
        from checkpoint_convert.convert import jobs_for, make_plan
        from fsdp_migrate.reports import conversion

        target = places.target(self._destination, self._options)
        plan = make_plan(contents, target.path, self._options)
        jobs_for(plan, self._options)
        write = conversion.plan_json if self._json else conversion.plan_text
        write(places.writer(conversion.printable(sys.stdout.write)), contents, plan)
        return len(plan.items.notices)

    def _convert(self, contents: Contents, watch: SourceWatch, places: StandIns) -> int:
        import contextlib

        from checkpoint_convert.convert import convert
        from checkpoint_convert.readers.open import ReadOptions, open_source
        from checkpoint_convert.report import write_report
        from fsdp_migrate.cli.transfer_bar import transfer_bar
        from fsdp_migrate.reports import conversion

        started = time.monotonic()
        written = ReadOptions(model_key=self._options.write.model_key, names_are_exact=True)
        target = places.target(self._destination, self._options)
        with contextlib.ExitStack() as stack:
            reference = None
            if self._against is not None:
                same = ReadOptions(keys=self._read.keys, keys_may_miss=True)
                reference = stack.enter_context(open_source([places.local(self._against)], same))
            progress = stack.enter_context(transfer_bar()) if self._options.ranks.is_first else None
            options = stack.enter_context(target.open())
            done = convert(
                contents,
                target.path,
                options,
                reopen=lambda path: open_source([path], written),
                watch=watch,
                against=reference,
                progress=progress,
            )
        if done is None:  # another rank than the first
            return 0
        if self._json:
            write_report(sys.stdout.write, done)
        else:
            write = places.writer(conversion.printable(sys.stdout.write))
            conversion.done_text(write, done, time.monotonic() - started)
        return len(done.notices)


def needs_options(contents: Contents) -> bool:
    """Whether the optimizer's groups lack what torch's current class asks for when it loads."""
    from checkpoint_convert.optim_groups import complete_group

    groups = contents.optimizer.groups if contents.optimizer else ()
    return any(complete_group(group.options).filled for group in groups)
