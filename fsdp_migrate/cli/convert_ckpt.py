"""`fsdp-migrate convert-ckpt SRC... DST`: FSDP1 checkpoints become per-parameter ones."""

from __future__ import annotations

import enum
import re
from typing import Annotated

import typer

from checkpoint_convert.write_options import OutputFormat, Part, Preset, TiedPolicy
from fsdp_migrate.cli.conversion_request import Request
from fsdp_migrate.cli.source_options import (
    From,
    FromKey,
    Ignored,
    Jobs,
    LayoutFrom,
    Model,
    ParamGroups,
    Report,
    ReportFormat,
    SaverTorch,
    Sources,
    Staging,
    Wrap,
    default_jobs,
    keys_of,
    read_groups,
)
from fsdp_migrate.exit_codes import ExitCode


class FloatType(enum.Enum):
    """What `--dtype` takes."""

    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"
    FLOAT32 = "float32"


def convert_ckpt(
    sources: Sources,
    destination: Annotated[
        str, typer.Argument(metavar="DST", help="A directory (--to torch: a file), or the URL of one.")
    ],
    source_format: From = None,
    from_key: FromKey = None,
    to: Annotated[OutputFormat | None, typer.Option("--to", help="What to write. [dcp]")] = None,
    model: Model = None,
    wrap: Wrap = None,
    layout_from: LayoutFrom = None,
    saver_torch: SaverTorch = None,
    ignored: Ignored = None,
    param_groups: ParamGroups = None,
    dtype: Annotated[
        FloatType | None, typer.Option(help="Convert the model's floating point tensors.")
    ] = None,
    only: Annotated[Part | None, typer.Option(help="Write this part alone.")] = None,
    tied: Annotated[
        TiedPolicy | None,
        typer.Option(
            help="Tied parameters: keep all names, only the first, or refuse. [keep; safetensors: first]"
        ),
    ] = None,
    fill_optim_state: Annotated[
        bool,
        typer.Option("--fill-optim-state", help="Zeros and step 0 where a parameter has no state."),
    ] = False,
    shards: Annotated[
        int | None, typer.Option(min=1, help="Lay the rows out for this many ranks, one file for each (DCP).")
    ] = None,
    mesh: Annotated[
        str | None,
        typer.Option(
            metavar="replicate=R,shard=S", help="Like --shards, for a 2-D mesh: replicas share files."
        ),
    ] = None,
    link: Annotated[
        bool,
        typer.Option(
            "--link", help="DCP to DCP: share SRC's files (clones, else hard links), copy no tensor."
        ),
    ] = False,
    layout: Annotated[Preset, typer.Option(help="Whose loader DST is for (DCP).")] = Preset.TORCH,
    model_key: Annotated[
        str | None, typer.Option(metavar="NAME", help="Top-level key of the model. [that of --layout]")
    ] = None,
    optim_key: Annotated[
        str | None, typer.Option(metavar="NAME", help="Top-level key of the optimizer. [that of --layout]")
    ] = None,
    against: Annotated[
        str | None, typer.Option(metavar="FULL.PT", help="A checkpoint that SRC must be equal to.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 1 if there is any notice.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace DST.")] = False,
    jobs: Jobs = None,
    no_verify: Annotated[bool, typer.Option("--no-verify", help="Do not read the output back.")] = False,
    max_memory: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Stay below 800MiB, 2G, ... with fewer threads, or refuse."),
    ] = None,
    staging: Staging = None,
    no_flush: Annotated[
        bool, typer.Option("--no-flush", help="Do not wait for the disk; a power cut may lose DST.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what goes where; write nothing.")] = False,
    report: Report = ReportFormat.TEXT,
) -> ExitCode:
    """Convert FSDP1 checkpoints to what FSDP2, Hugging Face or plain torch loads.

    Model and optimizer, from full files, per-rank files or DCP directories. Nothing in a checkpoint is run;
    memory stays small whatever the size; DST is complete or absent.

    Example: fsdp-migrate convert-ckpt step_5000.pt step_5000_fsdp2/
    """
    from checkpoint_convert.convert import ConvertOptions
    from checkpoint_convert.memory_bound import parse_size
    from checkpoint_convert.model import DType
    from checkpoint_convert.ranks import Ranks
    from checkpoint_convert.readers.options import ReadOptions
    from checkpoint_convert.write_options import WriteOptions

    read = ReadOptions(
        format=source_format,
        model=model,
        wrap=wrap,
        ignored=ignored,
        layout_from=layout_from,
        saver_torch=saver_torch,
        param_groups=read_groups(param_groups),
        keys=keys_of(from_key),
        use_optimizer=only is not Part.MODEL,
    )
    write = WriteOptions(
        to=to or OutputFormat.DCP,
        dtype=DType[dtype.name] if dtype else None,
        only=only,
        shards=shards if mesh is None else _shards_of(mesh, shards),
        tied=tied,
        fill_optim_state=fill_optim_state,
        link=link,
        preset=layout,
        model_key=layout.model_key if model_key is None else model_key,
        optim_key=layout.optim_key if optim_key is None else optim_key,
    )
    # What was asked for is written, even where it is what would be written anyway.
    asked = to is not None or model_key is not None or optim_key is not None or bool(from_key)
    asked = asked or write != WriteOptions()
    options = ConvertOptions(
        write=write,
        jobs=jobs or default_jobs(),
        verify=not no_verify,
        overwrite=overwrite,
        durable=not no_flush,
        max_memory=None if max_memory is None else parse_size(max_memory),
        ranks=Ranks.of_environment(),
    )
    request = Request(sources, destination, read, options, against, staging, report, dry_run, asked)
    return request.run(strict=strict)


def _shards_of(mesh: str, shards: int | None) -> int:
    """How many ranks of a mesh hold different rows.

    Raises:
        UnsupportedError: the text is no such mesh, or `--shards` says something too.
    """
    from checkpoint_convert.errors import UnsupportedError

    found = re.fullmatch(r"(?:replicate=[1-9]\d*,)?shard=([1-9]\d*)(?:,replicate=[1-9]\d*)?", mesh)
    if found is None:
        raise UnsupportedError(
            f"--mesh: {mesh!r} is no mesh of FSDP2", hint="write it as --mesh replicate=2,shard=4"
        )
    if shards is not None:
        raise UnsupportedError("--mesh and --shards say the same twice", hint="leave one of them out")
    return int(found.group(1))
