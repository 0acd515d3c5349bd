"""`fsdp-migrate capture-layout`: write the layout of a model that is built from its factory."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fsdp_migrate.exit_codes import ExitCode


def capture_layout(
    out: Annotated[Path, typer.Argument(metavar="OUT.json", help="Where to write the layout.")],
    model: Annotated[
        str, typer.Option(metavar="PKG.MODULE:FACTORY", help="Function that returns the model; runs on meta.")
    ],
    wrap: Annotated[
        str | None,
        typer.Option(
            metavar="CLASSES", help="What FSDP1 wrapped: pkg.module:Block[,...], or a policy object."
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace OUT.json if it is there.")] = False,
) -> ExitCode:
    """Write a layout.json: what flat FSDP1 checkpoints leave out (names, shapes, order, units).

    Where the old job still runs, call checkpoint_convert.capture_layout(model, "layout.json", optimizer) in
    it instead: that also notes the parameter groups, and which torch flattened the parameters.

    Example: fsdp-migrate capture-layout --model train.model:build --wrap train.model:Block layout.json
    """
    from checkpoint_convert.errors import DestinationError
    from checkpoint_convert.layout import to_json
    from checkpoint_convert.readers.layouts import given_layout
    from checkpoint_convert.readers.options import ReadOptions
    from fsdp_migrate import console

    if out.exists() and not overwrite:
        raise DestinationError(f"{out}: exists already", hint="Give --overwrite, or another name.")
    layout = given_layout(ReadOptions(model=model, wrap=wrap))
    assert layout is not None
    try:
        out.write_text(to_json(layout), encoding="utf-8")
    except OSError as error:
        raise DestinationError(
            f"{out}: cannot be written: {error.strerror}", hint="Check the path."
        ) from None
    count = len(layout.unique_parameters())
    units = "" if layout.units is None else f", {len(layout.units)} units"
    console.results().print(f"{out}: {count} parameters in {len(layout.modules)} modules{units}")
    return ExitCode.OK
