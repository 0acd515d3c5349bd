"""`fsdp-migrate inspect-ckpt SRC...`: what a checkpoint holds, from its headers alone."""

from __future__ import annotations

import sys

from fsdp_migrate.cli.places import stand_ins
from fsdp_migrate.cli.source_options import (
    From,
    LayoutFrom,
    Model,
    Report,
    ReportFormat,
    SaverTorch,
    Sources,
    Wrap,
)
from fsdp_migrate.exit_codes import ExitCode


def inspect_ckpt(
    sources: Sources,
    source_format: From = None,
    model: Model = None,
    wrap: Wrap = None,
    layout_from: LayoutFrom = None,
    saver_torch: SaverTorch = None,
    report: Report = ReportFormat.TEXT,
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
    as_json = report is ReportFormat.JSON
    with stand_ins() as places:
        paths = [places.local(text) for text in sources]
        out = places.writer(printable(sys.stdout.write))
        try:
            with open_source(paths, options) as contents:
                write = inspection.contents_json if as_json else inspection.contents_text
                write(out, paths, contents)
                return ExitCode.OK
        except (AmbiguousFormatError, IncompleteError, LayoutError) as missing:
            entries = list(raw_entries(paths))
            write_raw = inspection.raw_json if as_json else inspection.raw_text
            write_raw(out, paths, entries, missing)
            return ExitCode.NEEDS_YOU
