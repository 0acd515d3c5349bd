"""Options of `verify` that would do nothing: no verdict may be taken for one of what they ask for."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING

from fsdp_migrate.cli.verify_options import is_given
from fsdp_migrate.errors import UsageError

if TYPE_CHECKING:
    import typer

    from fsdp_migrate.verify.model import LaunchOptions
    from fsdp_migrate.verify.reference_job.config import ReferenceConfig

_SIMULATED = ("config", "dtype", "strategy", "accumulate", "tied", "batch", "sequence", "ac")
OF_REFERENCE = (
    *_SIMULATED,
    *("compile", "offload", "float8", "tp", "cp", "pp", "save_checkpoint", "simulate_world"),
)
_OF_OUTPUT = frozenset({"output_format", "output"})
_COUNT_BESIDE = {
    "compare": ("--compare reads two records and runs nothing", _OF_OUTPUT | {"strict", "exact"}),
    "record": (
        "--record compares nothing",
        frozenset({"script", "arguments", "module", "digests", "elements", "nproc", "nnodes"})
        | {"rdzv_endpoint", "steps", "device", "timeout", "keep", "preload", "fixed_order", "exact"},
    ),
    "simulate_world": (
        "--simulate-world runs rank 0 of the bundled job alone",
        _OF_OUTPUT | {*_SIMULATED, "device", "timeout"},
    ),
}
"""What an option makes of the command, and the options that count beside it."""


_NO_PARALLELISM = {
    "tp": "FSDP1's clip_grad_norm_ takes the norm of a rank's own share of tensor-parallel weights, so that "
    "an FSDP1 arm would be no measure",
    "cp": "torch's context parallelism has attention kernels for GPUs alone, and nothing of it was checked",
    "pp": "torch's pipeline stages steer FSDP2's gradient synchronisation and know nothing of FSDP1's, so "
    "that there is no FSDP1 arm to compare with",
}
_INSTEAD = "verify a script that does it, with --baseline what is trusted: verify SCRIPT --baseline DIR"


def refuse_beside(context: typer.Context) -> None:
    """What comparing two records, making one, or simulating does nothing with.

    Raises:
        UsageError: such an option, or a script beside `--compare`, was given.
    """
    for asked, (why, counting) in _COUNT_BESIDE.items():
        if not is_given(context, asked):
            continue
        for parameter in context.command.params:
            name = parameter.name or ""
            if name not in {asked, *counting} and is_given(context, name):
                words = "a script" if name in ("script", "arguments") else parameter.opts[0]
                raise UsageError(f"{why}; {words} has no place beside it", hint="Give one command for each.")


def refuse_contradictions(context: typer.Context, launch: LaunchOptions) -> None:
    """Options of which one makes the other mean nothing.

    Raises:
        UsageError: two such options were given.
    """
    if launch.exact and not launch.fixed_order and launch.nproc * launch.nnodes > 2:
        raise UsageError(
            "--exact asks for equal bits, which gradients of three and more ranks have only where they are "
            "summed in one order",
            hint="leave --no-fixed-order out",
        )
    if launch.exact and is_given(context, "measure_noise") and launch.measure_noise:
        raise UsageError("--exact allows no difference, so that no noise is measured")
    if is_given(context, "digests") and is_given(context, "elements"):
        raise UsageError(
            "--digests keeps no element of a tensor, and --elements every one", hint="Give one of them."
        )


def refuse_what_cannot_be(job: ReferenceConfig, exact: bool, parallel: Mapping[str, int]) -> None:
    """What the bundled job cannot be in both arms.

    Args:
        parallel: ranks that were asked for beside data parallelism: "tp", "cp", "pp".

    Raises:
        UsageError: it was asked for, or what it needs is not installed.
    """
    for option in (name for name, ranks in parallel.items() if ranks > 1):
        raise UsageError(f"--{option}: {_NO_PARALLELISM[option]}", hint=_INSTEAD)
    if job.float8 and find_spec("torchao") is None:
        raise UsageError("--float8: torchao is not installed here", hint="pip install torchao")
    if job.compile and exact:
        raise UsageError(
            "--compile --exact: what compiled layers compute is fused otherwise under FSDP1 and FSDP2, and "
            "rounds otherwise"
        )


def refuse_unused(context: typer.Context, *, reference: bool) -> None:
    """A verdict about another job than the one that was meant must not look like the one asked for.

    Raises:
        UsageError: an option was given that this job does not use.
    """
    for name in ("baseline", "record"):
        if reference and is_given(context, name):
            raise UsageError(f"--{name} is of a script, and none is named", hint="Name the SCRIPT.")
    unused = [name.replace("_", "-") for name in OF_REFERENCE if is_given(context, name)]
    if not reference and unused:
        raise UsageError(
            f"--{unused[0]} is an option of the reference job, and does nothing to a script",
            hint=f"If it is the script's own, put it after --: verify SCRIPT -- --{unused[0]} ...",
        )
