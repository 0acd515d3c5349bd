"""`fsdp-migrate inspect-ckpt SRC...`: what a checkpoint holds, from its headers alone."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from fsdp_migrate.cli.places import StandIns, stand_ins
from fsdp_migrate.cli.source_options import (
    From,
    FromKey,
    Ignored,
    LayoutFrom,
    Model,
    ParamGroups,
    Report,
    ReportFormat,
    SaverTorch,
    Sources,
    Wrap,
    keys_of,
    read_groups,
)
from fsdp_migrate.exit_codes import ExitCode

if TYPE_CHECKING:
    from checkpoint_convert.model import Contents


def inspect_ckpt(
    sources: Sources,
    source_format: From = None,
    from_key: FromKey = None,
    model: Model = None,
    wrap: Wrap = None,
    layout_from: LayoutFrom = None,
    saver_torch: SaverTorch = None,
    ignored: Ignored = None,
    param_groups: ParamGroups = None,
    tree: Annotated[
        bool, typer.Option("--tree", help="As a tree of the names, with equal layers once.")
    ] = False,
    under: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only this branch of the tree: model.layers.3")
    ] = None,
    depth: Annotated[int | None, typer.Option(min=1, help="Levels of the tree. [all]")] = None,
    report: Report = ReportFormat.TEXT,
) -> ExitCode:
    """Print what a checkpoint holds: format, tensors, optimizer, extras, and what a conversion would need.

    Reads headers only. A tree that is longer than the terminal opens in $PAGER. Exits 1 where a conversion
    needs something that SRC does not say.

    Example: fsdp-migrate inspect-ckpt checkpoints/step_5000/
    """
    from checkpoint_convert.errors import (
        AmbiguousFormatError,
        IncompleteError,
        LayoutError,
        UnsupportedError,
    )
    from checkpoint_convert.raw_contents import raw_entries
    from checkpoint_convert.readers.open import open_source
    from checkpoint_convert.readers.options import ReadOptions
    from fsdp_migrate.reports import inspection
    from fsdp_migrate.reports.conversion import printable

    options = ReadOptions(
        format=source_format,
        model=model,
        wrap=wrap,
        ignored=ignored,
        layout_from=layout_from,
        saver_torch=saver_torch,
        param_groups=read_groups(param_groups),
        keys=keys_of(from_key),
        only_listed=True,
    )
    as_tree = tree or under is not None or depth is not None
    as_json = report is ReportFormat.JSON
    with stand_ins() as places:
        paths = [places.local(text) for text in sources]
        out = places.writer(printable(sys.stdout.write))
        try:
            with open_source(paths, options) as contents:
                if as_tree:
                    _print_tree(places, contents, under, depth)
                    return ExitCode.OK
                write = inspection.contents_json if as_json else inspection.contents_text
                write(out, paths, contents)
                return ExitCode.OK
        except (AmbiguousFormatError, IncompleteError, LayoutError, UnsupportedError) as missing:
            entries = list(raw_entries(paths))
            if isinstance(missing, UnsupportedError) and (as_tree or not entries):
                raise
            write_raw = inspection.raw_json if as_json else inspection.raw_text
            write_raw(out, paths, entries, missing)
            return ExitCode.NEEDS_YOU


def _print_tree(places: StandIns, contents: Contents, under: str | None, depth: int | None) -> None:
    """To a pager where a terminal is too short for it."""
    import pydoc
    import shutil

    from fsdp_migrate.reports.checkpoint_tree import tree_text
    from fsdp_migrate.reports.conversion import printable

    lines: list[str] = []
    tree_text(places.writer(lines.append), contents, under, depth)
    if sys.stdin.isatty() and sys.stdout.isatty() and len(lines) >= shutil.get_terminal_size().lines:
        pydoc.pager("".join(lines))
        return
    write = printable(sys.stdout.write)
    for line in lines:
        write(line)
