"""`verify --checkpoint OLD`: what both arms resume from, converted as `convert-ckpt` converts.

The conversion is the command's own, with any of its options (`--convert`), so that what is refused there is
refused here in the same words. What it prints goes to stderr: stdout has the verdict.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from checkpoint_convert.errors import CheckpointError
from fsdp_migrate.errors import UsageError
from fsdp_migrate.exit_codes import ExitCode

if TYPE_CHECKING:
    from fsdp_migrate.cli.verify_settings import Chosen
    from fsdp_migrate.verify.arms import Progress
    from fsdp_migrate.verify.model import LaunchOptions
    from fsdp_migrate.verify.resumed import Resumed

_OF_TENSORS = re.compile(
    r"(model|optim|rank)(?!.*\.(json|yaml)$)|\.metadata|\.distcp|\.safetensors", re.IGNORECASE
)
"""In names of the files that are converted."""
_NOT_HERE = {
    "--dry-run": "writes nothing",
    "--overwrite": "writes over what is there; nothing is, in the place that verify converts to",
    "--against": "compares and says so on stdout; run convert-ckpt by itself for that",
}


@contextmanager
def resumed(
    chosen: Chosen, new: Path | None, launch: LaunchOptions, progress: Progress
) -> Iterator[Resumed | None]:
    """The checkpoint for either arm, for as long as the arms run; `None` where nothing is resumed.

    Args:
        new: what it was converted to already; `None` converts it.

    Raises:
        UsageError: a path that is not there, or options that cannot be met.
        CheckpointError: `convert-ckpt` refuses the checkpoint.
        Exit: it ended with another code than 0 (`--strict` among its options).
    """
    from fsdp_migrate.verify.baseline import require_place
    from fsdp_migrate.verify.resumed import Resumed

    old, convert = chosen.checkpoint, chosen.convert
    if old is None:
        if new is not None or convert:
            given = "--converted" if new is not None else "--convert"
            raise UsageError(f"{given} is of a checkpoint, and none is named", hint="--checkpoint OLD")
        yield None
        return
    for option, path in (("--checkpoint", old), ("--converted", new)):
        if path is not None and not path.exists():
            raise UsageError(f"{option} {path}: no such file or directory")
    request = chosen.request(launch)
    if request is not None:
        require_place(request)
    if new is not None:
        if convert:
            raise UsageError("--converted names what was converted; --convert has no place beside it")
        yield Resumed(str(old), str(new.absolute()), f"{new} has of it")
        return
    with _private_place(launch) as place:
        progress(f"converting {old}")
        with _standing_in(chosen.cwd):
            made = _converted(old, place, shlex.split(convert))
        yield Resumed(str(old), str(made), "convert-ckpt makes of it" if made != old else "")


@contextmanager
def _private_place(launch: LaunchOptions) -> Iterator[Path]:
    """A directory of this run's own, or one below `--keep`."""
    from fsdp_migrate.verify.slurm import task
    from fsdp_migrate.verify.started import CONVERTED, require_new_keep

    if launch.nnodes > 1 or task(os.environ) is not None:
        raise UsageError(
            "--checkpoint converts on one machine, and this job runs on several or under Slurm",
            hint="convert it once, to a directory that all see (fsdp-migrate convert-ckpt OLD NEW), and add "
            "--converted NEW",
        )
    if launch.keep is not None:
        require_new_keep(launch.keep)
        yield launch.keep.absolute() / CONVERTED
        return
    with tempfile.TemporaryDirectory(prefix="verify-checkpoint-") as temporary:
        yield Path(temporary).resolve() / CONVERTED


@contextmanager
def _standing_in(folder: Path) -> Iterator[None]:
    """The job's directory, from which `--model` is imported."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _converted(old: Path, place: Path, options: list[str]) -> Path:
    """What is made of a checkpoint: it keeps its name, from which loaders tell steps and kinds."""
    for option, why in _NOT_HERE.items():
        if option in options:
            raise UsageError(f"--convert {option}: it {why}")
    place.mkdir(parents=True)
    is_file = _is_file(options)
    destination = place / (old.stem if old.is_file() and not is_file else old.name)
    if is_file and not old.is_file():
        destination = destination.with_name(f"{destination.name}.pt")
    try:
        code = _run([str(old), str(destination), *options])
    except CheckpointError as error:
        error.hint = f"{error.hint} Options of convert-ckpt stand in --convert '...' here.".lstrip()
        raise
    if code != ExitCode.OK:
        raise typer.Exit(int(code))
    if not destination.exists():
        return old  # loadable as it is
    if old.is_dir() and destination.is_dir():
        _copy_companions(old, destination)
    return destination


def _copy_companions(old: Path, new: Path) -> None:
    """What loaders of a directory read beside model and optimizer: schedulers, random states, arguments."""
    for path in sorted(old.iterdir()):
        beside = path.is_file() and not _OF_TENSORS.search(path.name)
        if beside and not (new / path.name).exists():
            shutil.copy2(path, new / path.name)


def _is_file(options: list[str]) -> bool:
    return "--to=torch" in options or ("--to", "torch") in itertools.pairwise(options)


def _run(words: list[str]) -> ExitCode:
    """One call of `convert-ckpt` in this process."""
    from fsdp_migrate.cli.convert_ckpt import convert_ckpt

    single = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    single.command("convert-ckpt")(convert_ckpt)
    command: Any = typer.main.get_command(single)
    with contextlib.redirect_stdout(sys.stderr):
        code: ExitCode = command.main(
            args=words, prog_name="fsdp-migrate convert-ckpt", standalone_mode=False
        )
    return code
