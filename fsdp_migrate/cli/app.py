"""The `fsdp-migrate` program: global options, commands by name, the one error boundary."""

from __future__ import annotations

import functools
import os
import re
import signal
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from fsdp_migrate import __version__
from fsdp_migrate.cli.commands import COMMANDS
from fsdp_migrate.cli.plain_values import convert_plainly, expect_no_help
from fsdp_migrate.exit_codes import ExitCode

_GLOBAL = re.compile(r"-[vq]+|--verbose|--quiet|--no-color")
"""The options of `main_options`; no command has an option of its own that is spelled so."""


class _Group(TyperGroup):
    """Loads a command when it is asked for, and takes the global options after its name too.

    Up to `--`: what follows is a script's.
    """

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        names: Any = dict.fromkeys(COMMANDS)
        self.commands = names  # to suggest one where a name is misspelt
        convert_plainly(self.params, main_options)

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        function, own_class = entry.load()
        single = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
        single.command(cmd_name, cls=own_class)(guarded(function, unix_only=entry.unix_only))
        command = typer.main.get_command(single)
        convert_plainly(command.params, function)
        expect_no_help(command, ctx)
        return command

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in COMMANDS.items()])

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        expect_no_help(self, ctx)
        end = args.index("--") if "--" in args else len(args)
        ours = [word for word in args[:end] if _GLOBAL.fullmatch(word)]
        rest = [word for word in args[:end] if not _GLOBAL.fullmatch(word)]
        return super().parse_args(ctx, [*ours, *rest, *args[end:]] if rest else args)


app = typer.Typer(
    name="fsdp-migrate",
    cls=_Group,
    help="Moves PyTorch FSDP1 training to FSDP2: code, checkpoints, and the proof that nothing changed.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(value: bool) -> None:
    if value:
        typer.echo(f"fsdp-migrate {__version__}")
        raise typer.Exit


@app.callback()
def main_options(
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Results and errors only.")] = False,
    verbose: Annotated[int, typer.Option("-v", "--verbose", count=True, help="Say more.")] = 0,
    no_color: Annotated[bool, typer.Option("--no-color", help="No colour (also: NO_COLOR).")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options that every command takes."""
    from fsdp_migrate import console

    console.configure(no_color=no_color, verbosity=-1 if quiet else verbose)


def guarded(command: Callable[..., ExitCode], *, unix_only: bool = False) -> Callable[..., None]:
    """The error boundary around a command: its return value, or any error, becomes an exit code.

    Errors that carry a `message` and a `hint` (the three packages' trees) are shown as such; anything
    else is a fault of this tool and is shown with its traceback.
    """

    @functools.wraps(command)
    def run(*args: object, **kwargs: object) -> None:
        try:
            if getattr(signal.getsignal(signal.SIGINT), "__name__", "") == "leave_at_once":
                signal.signal(signal.SIGINT, signal.default_int_handler)
            if unix_only:
                _refuse_windows()
            code = command(*args, **kwargs)
            sys.stdout.flush()
        except KeyboardInterrupt:
            _say("interrupted")
            code = ExitCode.INTERRUPTED
        except BrokenPipeError:
            # Whoever read our results has gone; nobody misses the rest.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = ExitCode.OK
        except typer.Exit:
            raise
        except Exception as error:
            if type(error).__module__.startswith(("click.", "typer.")):
                raise  # a usage error, which typer words itself
            code = _explain(error)
        sys.exit(int(code))

    # typer reads options from the signature; the return value is ours alone.
    run.__annotations__ = {**command.__annotations__, "return": None}
    return run


def _refuse_windows() -> None:
    if sys.platform == "win32":
        from fsdp_migrate.errors import UsageError

        raise UsageError(
            "this command needs Linux or macOS; on Windows only code is rewritten",
            hint="run it where the job trains, or under WSL",
        )


def _explain(error: Exception) -> ExitCode:
    message, hint = getattr(error, "message", None), getattr(error, "hint", "")
    if message is not None:
        from fsdp_migrate.reports.visible import visible

        # It may quote what a job wrote, colours and all.
        _say("error: " + "\n".join(map(visible, message.split("\n"))))
        if hint:
            _say(f"  hint: {hint}")
        return ExitCode(getattr(error, "exit_code", ExitCode.BAD_INPUT))
    import traceback

    traceback.print_exception(error)
    _say(
        f"error: this is a fault of fsdp-migrate {__version__}, not of your input. "
        "Please report it with the lines above and the command you ran."
    )
    return ExitCode.BUG


def _say(text: str) -> None:
    print(f"fsdp-migrate: {text}", file=sys.stderr)


def main() -> None:
    """Run the program."""
    app(prog_name="fsdp-migrate")
