"""The options that checkpoint commands share: what SRC is, the form of the report, how many threads."""

from __future__ import annotations

import enum
import os
from pathlib import Path
from typing import Annotated

import typer

from checkpoint_convert.model import SourceFormat


class ReportFormat(enum.Enum):
    """What `--format` takes."""

    TEXT = "text"
    JSON = "json"


Sources = Annotated[
    list[str], typer.Argument(metavar="SRC...", help="Files, per-rank files, directories, or URLs of them.")
]
From = Annotated[
    SourceFormat | None, typer.Option("--from", help="The format of SRC, if its content does not tell.")
]
FromKey = Annotated[
    str | None,
    typer.Option(
        "--from-key",
        metavar="NAME,...",
        help="Keys of the model and optimizers to take, where SRC holds several.",
    ),
]
Model = Annotated[
    str | None,
    typer.Option(
        metavar="PKG.MODULE:FACTORY",
        help="The model, for flat checkpoints; built on meta. Or a Hugging Face config.json.",
    ),
]
Wrap = Annotated[
    str | None,
    typer.Option(metavar="PKG.MODULE:CLASS,...", help="The classes that FSDP1 wrapped."),
]
LayoutFrom = Annotated[
    Path | None,
    typer.Option(metavar="LAYOUT.JSON", help="Names and shapes, as `capture_layout` wrote them."),
]
Ignored = Annotated[
    str | None,
    typer.Option(
        metavar="NAMES",
        help="What FSDP1 ignored: FQNs, or classes of modules, comma separated.",
    ),
]
ParamGroups = Annotated[
    Path | None,
    typer.Option(metavar="GROUPS.JSON", help="The optimizer's groups: a list of lists of parameter names."),
]
SaverTorch = Annotated[
    str | None,
    typer.Option(metavar="VERSION", help="The torch that wrote SRC, where SRC does not say."),
]
Staging = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Folder for files on their way from or to URLs. [a temporary one]"),
]
Report = Annotated[ReportFormat, typer.Option("--format", help="Form of the report.")]
Jobs = Annotated[int | None, typer.Option(min=1, help="Threads. [one per core, up to 4]")]

MOST_JOBS = 4
"""Threads by default; more only help on storage that answers many requests at a time."""


def default_jobs() -> int:
    """One thread per core that we may use, up to `MOST_JOBS`."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, MOST_JOBS)


def keys_of(text: str | None) -> tuple[str, ...]:
    """The names that `--from-key` lists."""
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


def read_groups(path: Path | None) -> list[list[str]] | None:
    """The names per group out of a file of `--param-groups`.

    Raises:
        LayoutError: it holds anything else.
    """
    if path is None:
        return None
    import json

    from checkpoint_convert.errors import LayoutError

    try:
        groups = json.loads(path.read_text(encoding="utf-8"))
        if all(isinstance(group, list) and all(isinstance(name, str) for name in group) for group in groups):
            return [list(group) for group in groups]
        reason = "it is no list of lists of names"
    except (OSError, ValueError, TypeError) as error:
        reason = str(error)
    raise LayoutError(
        f"--param-groups {path}: {reason}",
        hint='Write it as [["a.weight", "b.weight"], ["a.bias"]], in the order the optimizer got them.',
    )
