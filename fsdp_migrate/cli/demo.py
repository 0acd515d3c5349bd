"""`fsdp-migrate demo`: a bundled FSDP1 project goes down the whole road, on CPU."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fsdp_migrate import console
from fsdp_migrate.exit_codes import ExitCode

if TYPE_CHECKING:
    from rich.status import Status

    from fsdp_migrate.demo.stages import RoadReport, Stage


class DemoFormat(str, Enum):
    """How the summary is printed."""

    TEXT = "text"
    JSON = "json"


def demo(
    directory: Annotated[
        Path | None, typer.Option(help="Work here and keep everything; must be empty or not exist.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the temporary directory.")] = False,
    nproc: Annotated[int, typer.Option(help="Processes of the FSDP1 runs.", min=2, max=4)] = 2,
    output_format: Annotated[
        DemoFormat, typer.Option("--format", help="Form of the summary.")
    ] = DemoFormat.TEXT,
) -> ExitCode:
    """Take a bundled FSDP1 project down the whole road: train, rewrite, convert, resume, verify.

    Needs no GPU and about a minute. Leaves with 0 when every stage went well, 1 when one needs you, and 3
    when a job died.

    Example: fsdp-migrate demo --directory ./fsdp-demo
    """
    import shutil
    import tempfile

    from fsdp_migrate.demo.road import Road
    from fsdp_migrate.verify.releases import GLOO_AVERAGES, require

    require(
        GLOO_AVERAGES,
        "the demo, which trains on CPUs,",
        "before it FSDP2 does not run on CPUs, or takes sums for averages there; rewrite, convert-ckpt and "
        "verify work with this torch",
    )
    if directory is not None:
        _make_empty(directory)
    where = directory or Path(tempfile.mkdtemp(prefix="fsdp-migrate-demo-"))
    keep = keep or directory is not None
    try:
        report = Road(where.resolve(), nproc, _Narrator()).walk()
        keep = keep or report.exit_code is not ExitCode.OK  # the logs say what went wrong
    finally:
        if not keep:
            shutil.rmtree(where, ignore_errors=True)
    if output_format is DemoFormat.JSON:
        _print_json(report)
    else:
        _print_table(report)
    if keep:
        console.progress().print(f"Everything is in {where}")
    return report.exit_code


def _make_empty(directory: Path) -> None:
    from fsdp_migrate.errors import UsageError

    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise UsageError(f"{directory} is not an empty directory", hint="name a new one with --directory")
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"{directory}: it cannot be made ({error.strerror})", hint="name another one with --directory"
        ) from error


class _Narrator:
    """Says on stderr what is going on: each stage, what one would type for it, how it ended."""

    def __init__(self) -> None:
        self._console = console.progress()
        self._spinner: Status | None = None

    def started(self, title: str, command: str) -> None:
        from rich.text import Text

        self._console.print(Text(f"\n{title}", style="bold"))
        self._console.print(Text(f"  $ {command}", style="dim"), soft_wrap=True)  # to copy as one line
        if self._console.is_terminal and not self._console.quiet:
            self._spinner = self._console.status("running")
            self._spinner.start()

    def finished(self, stage: Stage) -> None:
        if self._spinner is not None:
            self._spinner.stop()
            self._spinner = None
        self._console.print(f"  {stage.outcome.value}, {stage.seconds:.1f} s: {stage.result}", markup=False)


def _print_table(report: RoadReport) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(title="fsdp-migrate demo", title_justify="left")
    for heading in ("stage", "", "result"):
        table.add_column(heading, overflow="fold")
    table.add_column("seconds", justify="right")
    for stage in report.stages:
        # Text, because a path may hold brackets, which are rich's markup.
        cells = (stage.title, stage.outcome.value, stage.result, f"{stage.seconds:.1f}")
        table.add_row(*map(Text, cells))
    table.add_section()
    table.add_row("whole road", _verdict(report), "", f"{report.seconds:.1f}")
    console.results().print(table)


def _verdict(report: RoadReport) -> str:
    return {ExitCode.OK: "done", ExitCode.NEEDS_YOU: "needs you"}.get(report.exit_code, "failed")


def _print_json(report: RoadReport) -> None:
    import dataclasses
    import json

    stages = [dataclasses.asdict(stage) | {"outcome": stage.outcome.value} for stage in report.stages]
    whole = {"outcome": _verdict(report), "seconds": report.seconds, "stages": stages}
    typer.echo(json.dumps(whole, indent=2))
