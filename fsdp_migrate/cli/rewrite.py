"""`fsdp-migrate rewrite`: FSDP1 code to FSDP2 code, in place or as a diff."""

from __future__ import annotations

import gc
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fsdp_migrate.errors import UsageError
from fsdp_migrate.exit_codes import ExitCode
from fsdp_migrate.reports.formats import ReportFormat

if TYPE_CHECKING:
    from codemods.model import Options, Rewrite


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
        bool | None,
        typer.Option(
            "--unsafe-fixes/--no-unsafe-fixes",
            help="Also apply what can change numerics, memory or comments.",
            show_default="no",
        ),
    ] = None,
    drop_fsdp1: Annotated[
        bool | None,
        typer.Option(
            "--drop-fsdp1/--no-drop-fsdp1",
            help="Remove the FSDP1 branch where an FSDP2 branch stands beside it.",
            show_default="no",
        ),
    ] = None,
    whole_only: Annotated[
        bool | None,
        typer.Option(
            "--whole-only/--no-whole-only",
            help="Leave places that share a model untouched where one of them needs a person.",
            show_default="no",
        ),
    ] = None,
    allow_dirty: Annotated[
        bool, typer.Option("--allow-dirty", help="Rewrite although git has uncommitted changes.")
    ] = False,
    exclude: Annotated[
        list[str] | None,
        typer.Option(help="Leave out files that match this pattern, as in .gitignore; repeatable."),
    ] = None,
    select: Annotated[
        list[str] | None, typer.Option(help="Only these codes or rules (FM301, FM3, no_sync); repeatable.")
    ] = None,
    ignore: Annotated[list[str] | None, typer.Option(help="Not these codes or rules; repeatable.")] = None,
    target_torch: Annotated[
        str | None,
        typer.Option(help="Oldest torch the result must run on, 2.4 or later.", show_default="2.6"),
    ] = None,
    modernize: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WHAT",
            help="Improve sharded models: ac=full, ac=selective, compile, prefetch=N, float8, "
            "mesh=replicate:N,shard:M, units (repeatable).",
        ),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Processes. [one per core for large trees, else 1]")
    ] = None,
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
    `# fsdp-migrate: ignore[FM...] reason` leaves a place alone; [tool.fsdp-migrate] of pyproject.toml holds
    the same options.
    """
    from codemods.sources import find_files
    from fsdp_migrate.cli.rewrite_options import Given, rewrite_options
    from fsdp_migrate.reports.output_file import require_writable
    from fsdp_migrate.reports.publish import publish
    from fsdp_migrate.reports.rewrite import build_report
    from fsdp_migrate.settings import rewrite_settings

    # Syntax trees are millions of objects that live to the end: looking for garbage among them costs time.
    gc.disable()
    require_writable(output)
    target = _target(paths)
    if undo:
        return _undo(target, nothing_written=diff or check)
    _require_complete(target)
    given = Given(select, ignore, exclude, unsafe_fixes, drop_fsdp1, whole_only, target_torch, modernize)
    options = rewrite_options(given, rewrite_settings(target))
    files = find_files(target, [target], exclude=options.exclude)
    is_whole = [path.resolve() for path in paths] == [target]
    chosen = files if is_whole else find_files(target, paths, exclude=options.exclude)
    if not (diff or check or allow_dirty):
        _refuse_dirty(target, chosen)
    done = _planned(target, sorted({*files, *chosen}), options, frozenset(chosen), jobs)
    if not (diff or check):
        _write(target, done, ".".join(map(str, options.target_torch)))
    prefix = (_git(target, "rev-parse", "--show-prefix") or "") if done.reported else ""
    report = build_report(done, target, written=not (diff or check), prefix=prefix.strip())
    publish(report, format_, output, diff=diff)
    needs_you = bool(done.open_findings) or (check and bool(done.changes))
    return ExitCode.NEEDS_YOU if needs_you else ExitCode.OK


def _planned(
    target: Path, files: list[str], options: Options, chosen: frozenset[str], jobs: int | None
) -> Rewrite:
    """Where no file says FSDP, the rules are not even imported."""
    from codemods.model import Rewrite
    from codemods.sources import any_names_fsdp, is_configuration

    if not any_names_fsdp(target, files):
        python = [path for path in files if not is_configuration(path)]
        configs = sum(is_configuration(path) for path in chosen)
        return Rewrite((), (), (), searched=len(python), read=0, configs=(configs, 0))
    from codemods.plan import plan_rewrite
    from fsdp_migrate import console

    with console.progress().status(f"reading {len(files)} files"):
        return plan_rewrite(target, files, options, only=chosen, jobs=jobs)


def _require_complete(target: Path) -> None:
    if (target / ".fsdp-migrate").exists():
        from codemods.record import require_complete

        require_complete(target)


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
    entries = iter(status.split("\0"))
    for entry in entries:
        state, path = entry[:2], entry[3:]
        inside = path.removeprefix(prefix.strip())
        if "R" in state or "C" in state:
            next(entries)  # of a renamed file the old name follows, as an entry of its own
        if path and (state != "??" or inside in chosen):
            dirty.append(inside)
    if dirty:
        shown = ", ".join(dirty[:5]) + (f" and {len(dirty) - 5} more" if len(dirty) > 5 else "")
        raise UsageError(
            f"uncommitted changes in {target}: {shown}",
            hint="Commit or stash them first, to review the rewrite alone, or use --allow-dirty.",
        )


def _write(target: Path, done: Rewrite, target_torch: str) -> None:
    from codemods.record import is_interrupted
    from codemods.write import write_rewrite
    from fsdp_migrate import __version__

    try:
        write_rewrite(target, done, tool=__version__, target_torch=target_torch)
    except KeyboardInterrupt:
        told = (
            "interrupted while writing. Each file is either as it was or rewritten; "
            f"`fsdp-migrate rewrite --undo {shlex.quote(str(target))}` restores all of them."
            if is_interrupted(target)
            else "interrupted before any file was changed."
        )
        print(f"fsdp-migrate: {told}", file=sys.stderr)
        raise


def _undo(target: Path, *, nothing_written: bool) -> ExitCode:
    if nothing_written:
        raise UsageError(
            "--undo restores files, and --check and --diff write nothing",
            hint="Give --undo alone to restore the files.",
        )
    from codemods.undo import restore
    from fsdp_migrate import console
    from fsdp_migrate.reports.rewrite import count

    done = restore(target)
    screen = console.results()
    for verb, paths in (("Restored", done.restored), ("Removed", done.removed)):
        if paths:
            screen.print(f"{verb} {count(len(paths), 'file')}: {', '.join(paths)}", markup=False)
    if done.edited:
        names = ", ".join(done.edited)
        screen.print(f"Edited between two rewrites, so put back as edited: {names}", markup=False)
    return ExitCode.OK
