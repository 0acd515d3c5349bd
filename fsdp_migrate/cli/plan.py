"""`fsdp-migrate plan`: memory per GPU under FSDP1 and FSDP2, before there is a GPU."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from fsdp_migrate.cli.convert_ckpt import FloatType
from fsdp_migrate.cli.source_options import Wrap
from fsdp_migrate.cli.verify_options import StrategyOption
from fsdp_migrate.exit_codes import ExitCode


class PlanFormat(str, Enum):
    """How a plan is written."""

    text = "text"
    json = "json"
    md = "md"


class Checkpointing(str, Enum):
    """Which activations are computed again in the backward pass."""

    none = "none"
    full = "full"


def plan(
    model: Annotated[
        str,
        typer.Option(
            metavar="PKG.MODULE:FACTORY", help="The model, built on meta. Or a Hugging Face config.json."
        ),
    ],
    world_size: Annotated[int, typer.Option(min=1, help="GPUs of the job.")],
    mesh: Annotated[
        str | None, typer.Option(metavar="replicate=R,shard=S", help="Hybrid sharding. [shard=WORLD_SIZE]")
    ] = None,
    wrap: Wrap = None,
    strategy: Annotated[
        StrategyOption, typer.Option(help="FSDP1's sharding strategy.")
    ] = StrategyOption.full_shard,
    dtype: Annotated[
        FloatType | None, typer.Option(help="Of the stored parameters. [as the factory builds them]")
    ] = None,
    param_dtype: Annotated[
        FloatType | None, typer.Option(help="Mixed precision: what parameters are gathered in.")
    ] = None,
    reduce_dtype: Annotated[
        FloatType | None, typer.Option(help="What gradients are reduced in. [as --param-dtype]")
    ] = None,
    optimizer: Annotated[
        str,
        typer.Option(
            help="adamw, adamw-fused, adam, adagrad, rmsprop, sgd, sgd-momentum or pkg.module:function."
        ),
    ] = "adamw",
    ac: Annotated[
        Checkpointing, typer.Option(help="Activation checkpointing of the wrapped units.")
    ] = Checkpointing.none,
    use_orig_params: Annotated[
        bool | None,
        typer.Option(
            "--use-orig-params/--no-use-orig-params",
            help="FSDP1's. [where a unit mixes frozen and trained parameters]",
        ),
    ] = None,
    batch: Annotated[int | None, typer.Option(min=1, help="Sequences per GPU, of input_ids.")] = None,
    sequence: Annotated[int | None, typer.Option(min=1, help="Tokens in each.")] = None,
    inputs: Annotated[
        str | None,
        typer.Option(metavar="PKG.MODULE:FUNCTION", help="Returns what the model is called with."),
    ] = None,
    loss: Annotated[
        str | None,
        typer.Option(metavar="PKG.MODULE:FUNCTION", help="From the model's output to the loss."),
    ] = None,
    gpu: Annotated[str | None, typer.Option(metavar="NAME", help="Does it fit? h100-80gb, l40s, ...")] = None,
    gpu_memory: Annotated[str | None, typer.Option(metavar="SIZE", help="The same: 80GiB.")] = None,
    search: Annotated[
        bool,
        typer.Option("--search", help="Measure other strategies, meshes, checkpointing and batches too."),
    ] = False,
    output_format: Annotated[
        PlanFormat, typer.Option("--format", help="Form of the report.")
    ] = PlanFormat.text,
    output: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the report here.")] = None,
) -> ExitCode:
    """Memory per GPU of a training job under FSDP1 and FSDP2, without a GPU.

    Real FSDP1 and FSDP2 train two steps on tensors without memory, as rank 0 of a world that is not there.
    Exits 1 where a GPU is named and FSDP2 does not fit it.

    Example: fsdp-migrate plan --model llama/config.json --wrap LlamaDecoderLayer --world-size 64
    --param-dtype bfloat16 --batch 1 --sequence 4096 --gpu h100-80gb
    """
    from fsdp_migrate import console
    from fsdp_migrate.errors import UsageError
    from fsdp_migrate.planner.gpus import gpu_of
    from fsdp_migrate.planner.mesh import sharding_of
    from fsdp_migrate.planner.model import Inputs, Job, Settings
    from fsdp_migrate.reports import planned
    from fsdp_migrate.reports.output_file import require_writable

    require_writable(output)
    if (batch is None) is not (sequence is None):
        raise UsageError("--batch and --sequence are given together", hint="--batch 1 --sequence 4096")
    if inputs is not None and batch is not None:
        raise UsageError("--inputs and --batch say the same twice", hint="Leave one of them out.")
    if loss is not None and inputs is None and batch is None:
        raise UsageError(
            "--loss is of a model that is called", hint="Give --inputs, or --batch and --sequence."
        )
    card = gpu_of(gpu, gpu_memory)
    replicate, within = sharding_of(mesh, world_size, strategy.value)
    settings = Settings(
        world_size,
        replicate,
        within,
        None if dtype is None else dtype.value,
        None if param_dtype is None else param_dtype.value,
        None if reduce_dtype is None else reduce_dtype.value,
        ac is Checkpointing.full,
        optimizer,
        use_orig_params,
    )
    job = Job(model, wrap, settings, Inputs(inputs, loss, batch, sequence))
    screen = console.progress()

    def progress(line: str) -> None:
        screen.print(f"plan: {line}", markup=False, highlight=False)

    from fsdp_migrate.planner.plan import plan as make_plan

    found = make_plan(job, card, progress, search=search)
    planned.show(found, output_format.value, output)
    return ExitCode.NEEDS_YOU if planned.too_large(found) else ExitCode.OK
