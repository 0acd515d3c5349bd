"""The options of `verify`, from the command line and from `[tool.fsdp-migrate.verify]` together."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand


class DeviceOption(str, Enum):
    """`auto` takes the GPUs where there are any."""

    auto = "auto"
    cuda = "cuda"
    cpu = "cpu"


class FormatOption(str, Enum):
    """`md` is made to be pasted into a pull request, `html` is one file that needs nothing else."""

    text = "text"
    json = "json"
    md = "md"
    html = "html"


class SizeOption(str, Enum):
    """Sizes of the reference model."""

    tiny = "tiny"
    small = "small"
    medium = "medium"
    large = "large"
    llama_8b = "8b"


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


class CheckpointingOption(str, Enum):
    """Activation checkpointing of the reference job's layers."""

    none = "none"
    full = "full"
    selective = "selective"


class AlsoOption(str, Enum):
    """What the original can be run under for its speed, beside both arms."""

    ddp = "ddp"
    deepspeed = "deepspeed"
    megatron_fsdp = "megatron-fsdp"


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
        help="The original: a git revision, a directory, a file or a record. "
        "By default what `rewrite` recorded.",
        metavar="GIT_REF|DIR|FILE",
    ),
]
Checkpoint = Annotated[
    Path | None,
    typer.Option(
        help="Resume both arms from it: the original as it is, the candidate from what convert-ckpt makes of "
        "it. {checkpoint} in ARGS is its path in either arm.",
        metavar="OLD",
    ),
]
Convert = Annotated[
    str, typer.Option(help="Options of convert-ckpt for it: '--model my.model:build'.", metavar="OPTIONS")
]
Converted = Annotated[
    Path | None, typer.Option(help="What it was converted to already; nothing is converted.", metavar="NEW")
]
Record = Annotated[
    Path | None,
    typer.Option(help="Run SCRIPT alone, as it is, and keep what was seen as a record.", metavar="DIR"),
]
Compare = Annotated[
    tuple[Path, Path] | None,
    typer.Option(help="Compare two records; nothing is run.", metavar="RECORD RECORD"),
]
Digests = Annotated[
    bool, typer.Option("--digests", help="Keep digests and sketches of tensors, not their elements.")
]
Elements = Annotated[
    bool,
    typer.Option(
        "--elements",
        help="Keep every element of large tensors too (1 GiB per rank): slower, but tells where they differ.",
    ),
]
Nproc = Annotated[int, typer.Option(help="Processes on this machine.", min=1)]
Nnodes = Annotated[int, typer.Option(help="Machines.", min=1)]
Endpoint = Annotated[str, typer.Option(help="Rendezvous of all machines.", metavar="HOST:PORT")]
Steps = Annotated[int, typer.Option(help="Optimizer steps, or fewer if the script ends before.", min=1)]
DeviceName = Annotated[DeviceOption, typer.Option(help="cpu also rehearses scripts that name cuda.")]
Timeout = Annotated[
    float, typer.Option(help="Seconds without progress after which a job counts as hanging.", min=1)
]
Keep = Annotated[
    Path | None,
    typer.Option(help="Keep records and logs of all ranks here.", metavar="DIR"),
]
Preload = Annotated[bool, typer.Option(help="Fork ranks from a process that has imported torch.")]
FixedOrder = Annotated[bool, typer.Option(help="Sum gradients of 3 and more ranks in rank order.")]
MeasureNoise = Annotated[bool, typer.Option(help="Measure the noise floor when bits differ.")]
Exact = Annotated[
    bool,
    typer.Option(
        "--exact",
        help="Any differing bit fails, also what rounding explains; norms that gradients are clipped by are "
        "added up in float64 in both arms.",
    ),
]
ThirdArm = Annotated[
    bool, typer.Option("--third-arm", help="Run the original unsharded in fp32 too: which side is wrong?")
]
AsGpu = Annotated[
    bool,
    typer.Option("--as-gpu", help="In a rehearsal on a CPU, tell the script that there is a GPU."),
]
Profile = Annotated[
    bool, typer.Option("--profile", help="Measure speed, memory and overlap of both arms, in turns.")
]
Also = Annotated[
    list[AlsoOption] | None,
    typer.Option("--also", help="Measure the original under this too; implies --profile."),
]
SimulateWorld = Annotated[
    int | None,
    typer.Option(help="Reference job: memory of rank 0 among this many ranks, on one device.", min=1),
]
Strict = Annotated[bool, typer.Option("--strict", help="Exit 1 if the verdict has a warning.")]
Format = Annotated[FormatOption, typer.Option("--format", help="Form of the report.")]
Output = Annotated[Path | None, typer.Option(help="Write the report here.", metavar="FILE")]
Size = Annotated[SizeOption, typer.Option(help="Reference job: size of the model.")]
Dtype = Annotated[DtypeOption, typer.Option(help="Reference job: compute dtype.")]
Strategy = Annotated[StrategyOption, typer.Option(help="Reference job: FSDP1 sharding strategy.")]
Accumulate = Annotated[int, typer.Option(help="Reference job: micro-batches per step.", min=1)]
Ac = Annotated[
    CheckpointingOption, typer.Option("--ac", help="Reference job: activation checkpointing of its layers.")
]
Compile = Annotated[bool, typer.Option("--compile", help="Reference job: compile each layer.")]
Offload = Annotated[
    bool, typer.Option("--offload", help="Reference job: weights and optimizer on the CPU between uses.")
]
Float8 = Annotated[
    bool,
    typer.Option("--float8", help="Reference job: layers in float8 (torchao), emulated on CPUs."),
]
Parallel = Annotated[int, typer.Option(min=1, hidden=True)]
"""Refused, with the reason."""
SaveCheckpoint = Annotated[
    Path | None,
    typer.Option(
        help="Reference job: where the FSDP1 arm saves after its last step; for --checkpoint.", metavar="FILE"
    ),
]
Batch = Annotated[int, typer.Option(min=1, help="Reference job: sequences per rank and micro-batch.")]
Sequence = Annotated[int, typer.Option(min=1, help="Reference job: tokens per sequence.")]
Tied = Annotated[
    bool,
    typer.Option("--tied/--untied", help="Reference job: the head uses the embedding's weight."),
]


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


def let_first_task_speak() -> bool:
    """Below `srun` every task runs this command and comes to the same report, which the first one tells.

    Returns:
        Whether this process is to speak of its progress.
    """
    import os

    from fsdp_migrate.verify.slurm import task

    mine = task(os.environ)
    if mine is None or mine.rank == 0:
        return True
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return False


def is_given(context: typer.Context, name: str) -> bool:
    """Whether an option stands on the command line."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def also_measured(also: list[AlsoOption] | None) -> tuple[str, ...]:
    """Names of further arms, each once.

    Raises:
        UsageError: one that cannot be run here.
    """
    from importlib.util import find_spec

    from fsdp_migrate.errors import UsageError

    for one in also or ():
        if one is AlsoOption.megatron_fsdp:
            raise UsageError(
                "--also megatron-fsdp: it runs on GPUs alone, and this version of verify knows no way to run "
                "a job of FSDP under it",
                hint="--also ddp and --also deepspeed",
            )
        if one is AlsoOption.deepspeed and find_spec("deepspeed") is None:
            raise UsageError(
                "--also deepspeed: deepspeed is not installed here", hint="--also ddp needs nothing but torch"
            )
    return tuple(dict.fromkeys(one.value for one in also or ()))
