"""The options of both checkpoint commands that say what SRC is, and the one for the form of the report."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated

import typer

from checkpoint_convert.model import SourceFormat


class ReportFormat(enum.Enum):
    """What `--format` takes."""

    TEXT = "text"
    JSON = "json"


Sources = Annotated[
    list[Path], typer.Argument(metavar="SRC...", help="Files, per-rank files or directories.")
]
From = Annotated[
    SourceFormat | None, typer.Option("--from", help="What SRC is, where its content leaves it open.")
]
Model = Annotated[
    str | None,
    typer.Option(metavar="PKG.MODULE:FACTORY", help="The model, for flat checkpoints; built on meta."),
]
Wrap = Annotated[
    str | None,
    typer.Option(metavar="PKG.MODULE:CLASS,...", help="The classes that FSDP1 wrapped."),
]
LayoutFrom = Annotated[
    Path | None,
    typer.Option(metavar="LAYOUT.JSON", help="Names and shapes, as `capture_layout` wrote them."),
]
SaverTorch = Annotated[
    str | None,
    typer.Option(metavar="VERSION", help="The torch that wrote SRC, where SRC does not say."),
]
Report = Annotated[ReportFormat, typer.Option("--format", help="Form of the report.")]
