"""`fsdp-migrate rewrite`: FSDP1 code to FSDP2 code, in place or as a diff."""

from __future__ import annotations

import enum
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fsdp_migrate.errors import UsageError
from fsdp_migrate.exit_codes import ExitCode

if TYPE_CHECKING:
    from codemods.model import Rewrite


class ReportFormat(str, enum.Enum):
    """How a report is written."""

    TEXT = "text"
    JSON = "json"


def rewrite(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH...", help="Files or directories: Python, notebooks, configuration, scripts."
        ),
    ],
    diff: Annotated[
        bool, typer.Option("--diff", help="Print the changes (for `git apply`); write nothing.")
    ] = False,
    check: Annotated[bool, typer.Option("--check", help="Print the report only; write nothing.")] = False,
    format_: Annotated[
        ReportFormat, typer.Option("--format", help="Of the report.", case_sensitive=False)
    ] = ReportFormat.TEXT,
    output: Annotated[Path | None, typer.Option(help="Write the report to this file.")] = None,
    unsafe_fixes: Annotated[
        bool, typer.Option("--unsafe-fixes", help="Also apply what can change numerics, memory or comments.")
    ] = False,
    allow_dirty: Annotated[
        bool, typer.Option("--allow-dirty", help="Rewrite although git has uncommitted changes.")
    ] = False,
    exclude: Annotated[
        list[str] | None,
        typer.Option(help="Leave out files that match this pattern, as in .gitignore; repeatable."),
    ] = None,
    select: Annotated[
        list[str] | None, typer.Option(help="Only these codes (FM301, FM3); repeatable.")
    ] = None,
    ignore: Annotated[list[str] | None, typer.Option(help="Not these codes; repeatable.")] = None,
    target_torch: Annotated[str, typer.Option(help="Oldest torch the result must run on.")] = "2.6",
    undo: Annotated[
        bool, typer.Option("--undo", help="Restore the files as they were before rewriting.")
    ] = False,
) -> ExitCode:
    """Rewrite FSDP1 code into FSDP2 code, in place.

    Example: fsdp-migrate rewrite --diff ./my_trainer

    Besides Python files: notebooks (code cells), launch scripts, and the FSDP settings of Accelerate and
    Transformers in YAML and JSON.

    The originals are kept in .fsdp-migrate/ of the target, where `verify` finds them. What is not translated
    gets a comment `# TODO(fsdp-migrate FM...)` and the exit status 1; `fsdp-migrate explain FM...` says more.
    """
    from codemods.model import Options
    from codemods.plan import plan_rewrite
    from codemods.sources import find_files
    from fsdp_migrate import console

    target = _target(paths)
    if undo:
        return _undo(target)
    options = Options(
        unsafe_fixes=unsafe_fixes,
        select=_codes(select),
        ignore=_codes(ignore),
        exclude=tuple(exclude or ()),
        target_torch=_torch_version(target_torch),
    )
    files = find_files(target, [target], exclude=options.exclude)
    chosen = find_files(target, paths, exclude=options.exclude)
    if not (diff or check or allow_dirty):
        _refuse_dirty(target, chosen)
    with console.progress().status(f"reading {len(files)} files"):
        done = plan_rewrite(target, sorted({*files, *chosen}), options, only=frozenset(chosen))
    if not (diff or check):
        _write(target, done, target_torch)
    _report(done, format_, output, diff=diff, written=not (diff or check))
    needs_you = bool(done.open_findings) or (check and bool(done.changes))
    return ExitCode.NEEDS_YOU if needs_you else ExitCode.OK


def _target(paths: list[Path]) -> Path:
    """The directory that is rewritten: the one named; for files, their repository or folder."""
    for path in paths:
        if not path.exists():
            raise UsageError(f"{path} does not exist", hint="Name files or directories.")
    folders = [path.resolve() if path.is_dir() else _home_of(path.resolve()) for path in paths]
    return Path(os.path.commonpath(folders))


def _home_of(path: Path) -> Path:
    return _git_root(path.parent) or path.parent


def _git_root(folder: Path) -> Path | None:
    done = _git(folder, "rev-parse", "--show-toplevel")
    return Path(done.strip()) if done else None


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None


def _refuse_dirty(target: Path, files: list[str]) -> None:
    """Outside git the kept originals are the way back; inside, a clean tree is."""
    status = _git(target, "status", "--porcelain", "-z", "--untracked-files=all", "--", ".")
    prefix = _git(target, "rev-parse", "--show-prefix")
    if not status or prefix is None:
        return
    chosen = set(files)
    dirty = []
    for entry in status.split("\0"):
        state, path = entry[:2], entry[3:]
        inside = path.removeprefix(prefix.strip())
        if len(entry) > 3 and (state != "??" or inside in chosen):
            dirty.append(inside)
    if dirty:
        shown = ", ".join(dirty[:5]) + (f" and {len(dirty) - 5} more" if len(dirty) > 5 else "")
        raise UsageError(
            f"uncommitted changes in {target}: {shown}",
            hint="Commit or stash them first, to review the rewrite alone; or use --allow-dirty.",
        )


def _torch_version(text: str) -> tuple[int, int]:
    parts = text.split(".")
    if len(parts) < 2 or not all(part.isdigit() for part in parts[:2]):
        raise UsageError(f"--target-torch {text} is no version", hint="For example: --target-torch 2.6")
    version = int(parts[0]), int(parts[1])
    if version < (2, 6):
        raise UsageError(
            f"--target-torch {text} is too old: `fully_shard` is public from torch 2.6 on",
            hint="Rewrite for 2.6 or later, and move the training to it.",
        )
    return version


def _codes(given: list[str] | None) -> tuple[str, ...]:
    return tuple(code.strip() for item in given or () for code in item.split(",") if code.strip())


def _write(target: Path, done: Rewrite, target_torch: str) -> None:
    from codemods.record import write_rewrite
    from fsdp_migrate import __version__

    try:
        write_rewrite(target, done, tool=__version__, target_torch=target_torch)
    except KeyboardInterrupt:
        print(
            f"fsdp-migrate: interrupted while writing. Each file is either as it was or rewritten; "
            f"`fsdp-migrate rewrite --undo {target}` restores all of them.",
            file=sys.stderr,
        )
        raise


def _undo(target: Path) -> ExitCode:
    from codemods.record import restore
    from fsdp_migrate import console

    restored = restore(target)
    console.results().print(f"Restored {len(restored)} files: {', '.join(restored)}", markup=False)
    return ExitCode.OK


def _report(done: Rewrite, format_: ReportFormat, output: Path | None, *, diff: bool, written: bool) -> None:
    from fsdp_migrate import console
    from fsdp_migrate.reports import rewrite as report

    if diff:
        sys.stdout.write(_unified(done))
        sys.stdout.flush()
    if output is not None:
        _save(output, done, format_, written=written)
    elif format_ is ReportFormat.JSON and not diff:
        print(report.as_json(done, written=written))
    else:
        screen = console.progress() if diff else console.results()
        report.show(done, screen, written=written, verbose=console.verbosity() > 0)


def _save(output: Path, done: Rewrite, format_: ReportFormat, *, written: bool) -> None:
    from rich.console import Console

    from fsdp_migrate.reports import rewrite as report

    try:
        with output.open("w") as stream:
            if format_ is ReportFormat.JSON:
                stream.write(report.as_json(done, written=written) + "\n")
            else:
                report.show(
                    done, Console(file=stream, width=120, color_system=None), written=written, verbose=True
                )
    except OSError as error:
        raise UsageError(f"--output {output} cannot be written: {error.strerror or error}") from error


def _unified(done: Rewrite) -> str:
    from codemods.editing.diff import unified

    return "".join(unified(change) for change in done.changes)
