"""Options of `verify` that would do nothing: no verdict may be taken for one of what they ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsdp_migrate.cli.verify_options import is_given
from fsdp_migrate.errors import UsageError

if TYPE_CHECKING:
    import typer

    from fsdp_migrate.verify.model import LaunchOptions

OF_REFERENCE = (
    *("config", "dtype", "strategy", "accumulate", "tied", "batch", "sequence"),
    "simulate_world",
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
        _OF_OUTPUT | {*OF_REFERENCE, "device", "timeout"},
    ),
}
"""What an option makes of the command, and the options that count beside it."""


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
