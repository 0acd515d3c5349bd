"""`fsdp-migrate inspect-ckpt SRC...`: what a checkpoint holds, from its headers alone."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from checkpoint_convert.model import SourceFormat
from fsdp_migrate.cli.convert_ckpt import ReportFormat
from fsdp_migrate.exit_codes import ExitCode


def inspect_ckpt(
    sources: Annotated[
        list[Path], typer.Argument(metavar="SRC...", help="Files, per-rank files or directories.")
    ],
    source_format: Annotated[
        SourceFormat | None, typer.Option("--from", help="What SRC is, where its content leaves it open.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(metavar="PKG.MODULE:FACTORY", help="The model, for flat checkpoints; built on meta."),
    ] = None,
    wrap: Annotated[
        str | None,
        typer.Option(metavar="PKG.MODULE:CLASS,...", help="The classes that FSDP1 wrapped."),
    ] = None,
    layout_from: Annotated[
        Path | None,
        typer.Option(metavar="LAYOUT.JSON", help="Names and shapes, as `capture_layout` wrote them."),
    ] = None,
    saver_torch: Annotated[
        str | None,
        typer.Option(metavar="VERSION", help="The torch that wrote SRC, where SRC does not say."),
    ] = None,
    report: Annotated[ReportFormat, typer.Option("--format", help="Form of the report.")] = ReportFormat.TEXT,
) -> ExitCode:
    """Print what a checkpoint holds: format, tensors, optimizer, extras, and what a conversion would need.

    Reads headers only. Exits 1 where a conversion needs something that SRC does not say.

    Example: fsdp-migrate inspect-ckpt checkpoints/step_5000/
    """
    from checkpoint_convert.errors import AmbiguousFormatError, IncompleteError, LayoutError
    from checkpoint_convert.raw_contents import raw_entries
    from checkpoint_convert.readers.open import open_source
    from checkpoint_convert.readers.options import ReadOptions
    from fsdp_migrate.reports import inspection
    from fsdp_migrate.reports.conversion import printable

    options = ReadOptions(
        format=source_format, model=model, wrap=wrap, layout_from=layout_from, saver_torch=saver_torch
    )
    out = printable(sys.stdout.write)
    as_json = report is ReportFormat.JSON
    try:
        with open_source(sources, options) as contents:
            write = inspection.contents_json if as_json else inspection.contents_text
            write(out, sources, contents)
            return ExitCode.OK
    except (AmbiguousFormatError, IncompleteError, LayoutError) as missing:
        entries = list(raw_entries(sources))
        write_raw = inspection.raw_json if as_json else inspection.raw_text
        write_raw(out, sources, entries, missing)
        return ExitCode.NEEDS_YOU
