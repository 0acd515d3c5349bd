"""`fsdp-migrate verify`: run the original and the converted job and compare them."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

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


Script = Annotated[str | None, typer.Argument(metavar="SCRIPT", help="The converted training script.")]
Arguments = Annotated[
    list[str] | None, typer.Argument(metavar="ARGS", help="Arguments of the script, after --.")
]
Module = Annotated[
    str | None,
    typer.Option("-m", "--module", help="Run a module instead of a script file."),
]
Baseline = Annotated[
    str | None,
    typer.Option(
        help="The original: a git revision, a directory or a file. By default what `rewrite` recorded.",
        metavar="GIT_REF|DIR|FILE",
    ),
]
Nproc = Annotated[int, typer.Option(help="Processes on this machine.", min=1)]
Nnodes = Annotated[int, typer.Option(help="Machines.", min=1)]
Endpoint = Annotated[str, typer.Option(help="Rendezvous of all machines.", metavar="HOST:PORT")]
Steps = Annotated[int, typer.Option(help="Optimizer steps, or until the script ends.", min=1)]
DeviceName = Annotated[DeviceOption, typer.Option(help="cpu also rehearses scripts that name cuda.")]
Timeout = Annotated[float, typer.Option(help="Seconds without progress after which a job hangs.", min=1)]
Keep = Annotated[
    Path | None,
    typer.Option(help="Keep records and logs of every rank here.", metavar="DIR"),
]
Preload = Annotated[bool, typer.Option(help="Fork ranks from a process that has imported torch.")]
FixedOrder = Annotated[bool, typer.Option(help="Sum gradients of 3 and more ranks in rank order.")]
MeasureNoise = Annotated[bool, typer.Option(help="Measure the noise floor when bits differ.")]
Format = Annotated[FormatOption, typer.Option("--format", help="Form of the report.")]
Output = Annotated[Path | None, typer.Option(help="Write the report here.", metavar="FILE")]
Size = Annotated[SizeOption, typer.Option(help="Reference job: size of the model.")]
Dtype = Annotated[DtypeOption, typer.Option(help="Reference job: compute dtype.")]
Strategy = Annotated[StrategyOption, typer.Option(help="Reference job: FSDP1 sharding strategy.")]
Accumulate = Annotated[int, typer.Option(help="Reference job: micro-batches per step.", min=1)]
Tied = Annotated[
    bool,
    typer.Option("--tied/--untied", help="Reference job: the head uses the embedding's weight."),
]
_OF_REFERENCE = ("config", "dtype", "strategy", "accumulate", "tied")


class ScriptCommand(TyperCommand):
    """A command whose argument is a script: an option it does not know may be the script's own."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse as ever, and say where the script's options go."""
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            option = getattr(error, "option_name", None)
            if type(error).__name__ == "NoSuchOption" and option is not None:
                error.message = (  # type: ignore[attr-defined]
                    f"No such option: {option}. If it is for the script, put the script's own arguments "
                    f"after --: verify SCRIPT -- {option} ..."
                )
            raise


def verify(
    context: typer.Context,
    script: Script = None,
    arguments: Arguments = None,
    module: Module = None,
    baseline: Baseline = None,
    nproc: Nproc = 2,
    nnodes: Nnodes = 1,
    rdzv_endpoint: Endpoint = "",
    steps: Steps = 5,
    device: DeviceName = DeviceOption.auto,
    timeout: Timeout = 300.0,
    keep: Keep = None,
    preload: Preload = True,
    fixed_order: FixedOrder = True,
    measure_noise: MeasureNoise = True,
    output_format: Format = FormatOption.text,
    output: Output = None,
    config: Size = SizeOption.tiny,
    dtype: Dtype = DtypeOption.fp32,
    strategy: Strategy = StrategyOption.full_shard,
    accumulate: Accumulate = 1,
    tied: Tied = False,
) -> ExitCode:
    """Run the original and the converted job from the same start and compare them.

    Without SCRIPT the bundled reference job runs, a small Llama-style decoder under FSDP1 and FSDP2.
    Exit code 0: parity holds; 1: it does not; 2: bad input; 3: a job failed or hangs.

    Example: fsdp-migrate verify train.py --nproc 4 -- --config small.yaml
    """
    from fsdp_migrate import console
    from fsdp_migrate.reports import parity
    from fsdp_migrate.reports.output_file import require_writable
    from fsdp_migrate.verify.model import LaunchOptions

    require_writable(output)
    _refuse_unused(context, reference=module is None and script is None)
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


def _refuse_unused(context: typer.Context, *, reference: bool) -> None:
    """A verdict about another job than the one that was meant must not look like the one asked for.

    Raises:
        UsageError: an option was given that this job does not use.
    """
    from fsdp_migrate.errors import UsageError

    def is_given(name: str) -> bool:
        source = context.get_parameter_source(name)
        return source is not None and source.name == "COMMANDLINE"

    if reference and is_given("baseline"):
        raise UsageError("--baseline is of a script, and none is named", hint="Name the converted SCRIPT.")
    unused = [name for name in _OF_REFERENCE if is_given(name)]
    if not reference and unused:
        raise UsageError(
            f"--{unused[0]} is an option of the reference job, and does nothing to a script",
            hint=f"If it is the script's own, put it after --: verify SCRIPT -- --{unused[0]} ...",
        )


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
