"""`fsdp-migrate verify`: run the original and the converted job and compare them."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fsdp_migrate.exit_codes import ExitCode

if TYPE_CHECKING:
    from fsdp_migrate.verify.arms import Progress
    from fsdp_migrate.verify.model import LaunchOptions, ParityReport


class DeviceOption(str, Enum):
    """`auto` takes the GPUs where there are any."""

    auto = "auto"
    cuda = "cuda"
    cpu = "cpu"


class FormatOption(str, Enum):
    """`md` is made to be pasted into a pull request."""

    text = "text"
    json = "json"
    md = "md"


class SizeOption(str, Enum):
    """Sizes of the reference model."""

    tiny = "tiny"
    small = "small"
    medium = "medium"
    large = "large"


class DtypeOption(str, Enum):
    """What the reference job computes in."""

    fp32 = "fp32"
    bf16 = "bf16"


class StrategyOption(str, Enum):
    """FSDP1's sharding strategies."""

    full_shard = "full_shard"
    shard_grad_op = "shard_grad_op"
    no_shard = "no_shard"
    hybrid_shard = "hybrid_shard"


_JOB = "The job"
_REFERENCE = "The bundled reference job (without SCRIPT)"


def verify(
    script: Annotated[
        str | None, typer.Argument(metavar="[SCRIPT]", help="The converted training script.")
    ] = None,
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[-- ARGS...]", help="Arguments of the script.")
    ] = None,
    module: Annotated[
        str | None,
        typer.Option("-m", "--module", help="Run a module instead of a script file.", rich_help_panel=_JOB),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            help="The original: a git revision, a directory or a file. By default what `rewrite` recorded.",
            metavar="GIT_REF|DIR|FILE",
            rich_help_panel=_JOB,
        ),
    ] = None,
    nproc: Annotated[int, typer.Option(help="Processes on this machine.", min=1, rich_help_panel=_JOB)] = 2,
    nnodes: Annotated[int, typer.Option(help="Machines.", min=1, rich_help_panel=_JOB)] = 1,
    rdzv_endpoint: Annotated[
        str, typer.Option(help="HOST:PORT of the rendezvous, with --nnodes.", rich_help_panel=_JOB)
    ] = "",
    steps: Annotated[
        int, typer.Option(help="Optimizer steps, or until the script ends.", min=1, rich_help_panel=_JOB)
    ] = 5,
    device: Annotated[
        DeviceOption, typer.Option(help="cpu also rehearses scripts that name cuda.", rich_help_panel=_JOB)
    ] = DeviceOption.auto,
    timeout: Annotated[
        float,
        typer.Option(help="Seconds without progress after which a job hangs.", min=1, rich_help_panel=_JOB),
    ] = 300.0,
    keep: Annotated[
        Path | None,
        typer.Option(help="Keep records and logs of every rank here.", metavar="DIR", rich_help_panel=_JOB),
    ] = None,
    preload: Annotated[
        bool, typer.Option(help="Fork ranks from a process that has imported torch.", rich_help_panel=_JOB)
    ] = True,
    fixed_order: Annotated[
        bool, typer.Option(help="Sum gradients of 3 and more ranks in rank order.", rich_help_panel=_JOB)
    ] = True,
    measure_noise: Annotated[
        bool, typer.Option(help="Measure the noise floor when bits differ.", rich_help_panel=_JOB)
    ] = True,
    output_format: Annotated[
        FormatOption, typer.Option("--format", help="Form of the report.")
    ] = FormatOption.text,
    output: Annotated[Path | None, typer.Option(help="Write the report here.", metavar="FILE")] = None,
    config: Annotated[
        SizeOption, typer.Option(help="Size of the model.", rich_help_panel=_REFERENCE)
    ] = SizeOption.tiny,
    dtype: Annotated[
        DtypeOption, typer.Option(help="Compute dtype.", rich_help_panel=_REFERENCE)
    ] = DtypeOption.fp32,
    strategy: Annotated[
        StrategyOption, typer.Option(help="FSDP1 sharding strategy.", rich_help_panel=_REFERENCE)
    ] = StrategyOption.full_shard,
    accumulate: Annotated[
        int, typer.Option(help="Micro-batches per step.", min=1, rich_help_panel=_REFERENCE)
    ] = 1,
    tied: Annotated[
        bool,
        typer.Option(
            "--tied/--untied", help="The head uses the embedding's weight.", rich_help_panel=_REFERENCE
        ),
    ] = False,
) -> ExitCode:
    """Run the original and the converted job from the same start and compare them.

    Exit code 0: parity holds; 1: it does not; 2: bad input; 3: a job failed or hangs.

    Example: fsdp-migrate verify train.py --nproc 4 -- --config small.yaml
    """
    from fsdp_migrate import console
    from fsdp_migrate.errors import UsageError
    from fsdp_migrate.reports import parity
    from fsdp_migrate.verify.model import LaunchOptions

    if output is not None and not output.resolve().parent.is_dir():
        raise UsageError(f"--output {output}: its directory does not exist")
    options = LaunchOptions(
        nproc, nnodes, rdzv_endpoint, steps, device.value, timeout, keep, preload, fixed_order, measure_noise
    )
    screen = console.progress()

    def progress(line: str) -> None:
        screen.print(f"verify: {line}")

    given = [*(() if script is None else (script,)), *(arguments or ())]
    if module is None and script is None:
        report = _reference(options, config, dtype, strategy, accumulate, tied, progress)
    else:
        report = _script(options, module, given, baseline, progress)
    parity.show(report, output_format.value, output)
    return ExitCode.OK if report.passed else ExitCode.NEEDS_YOU


def _script(
    options: LaunchOptions, module: str | None, given: list[str], baseline: str | None, progress: Progress
) -> ParityReport:
    from fsdp_migrate.verify.model import VerifyRequest
    from fsdp_migrate.verify.run import verify_script

    name, rest = (given[0], given[1:]) if module is None else (module, given)
    return verify_script(
        VerifyRequest(name, tuple(rest), module is not None, baseline, Path.cwd(), options), progress
    )


def _reference(
    options: LaunchOptions,
    config: SizeOption,
    dtype: DtypeOption,
    strategy: StrategyOption,
    accumulate: int,
    tied: bool,
    progress: Progress,
) -> ParityReport:
    from fsdp_migrate.verify.reference_job.config import ReferenceConfig
    from fsdp_migrate.verify.run import verify_reference

    job = ReferenceConfig(
        size=config.value,
        dtype=dtype.value,
        strategy=strategy.value,
        accumulate=accumulate,
        tied=tied,
        steps=options.steps,
    )
    return verify_reference(job, options, progress)
