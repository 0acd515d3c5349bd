"""Where a report of `rewrite` goes: the diff and the report to stdout, or the report to a file."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

from fsdp_migrate import console
from fsdp_migrate.errors import UsageError
from fsdp_migrate.reports import output_file
from fsdp_migrate.reports.formats import ReportFormat
from fsdp_migrate.reports.rewrite import RewriteReport, outcome, render, searched


def publish(report: RewriteReport, form: ReportFormat, output: Path | None, *, diff: bool) -> None:
    """Write the report, and the diff if asked for.

    With a diff on stdout the report moves to stderr, as text, unless it has a file of its own.

    Raises:
        UsageError: the file, or stdout, cannot be written.
        BrokenPipeError: whoever read stdout has gone.
    """
    try:
        _publish(report, form, output, diff=diff)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        # What waits in the buffer would fail once more when the program ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        done = " The files are rewritten." if report.written and report.rewrite.changes else ""
        raise UsageError(
            f"the report cannot be written to stdout: {error.strerror or error}.{done}",
            hint="Make room, or name a file elsewhere with --output.",
        ) from error


def _publish(report: RewriteReport, form: ReportFormat, output: Path | None, *, diff: bool) -> None:
    rewrite = report.rewrite
    is_empty = not (rewrite.reported or rewrite.changes or rewrite.wrap_sites)
    if is_empty and form is ReportFormat.TEXT and output is None:
        print(f"{searched(report)}\n{outcome(report)}", file=sys.stderr if diff else sys.stdout)
        return
    if diff:
        from codemods.editing.diff import unified

        _print("".join(unified(change) for change in report.rewrite.changes))
    if output is not None:
        output_file.save(output, render(report, form))
        console.progress().print(f"{outcome(report)}\nThe report is in {output}.", markup=False)
    elif form is ReportFormat.TEXT or diff:
        from fsdp_migrate.reports import rewrite_text

        screen = console.progress() if diff else console.results()
        rewrite_text.show(report, screen, verbose=console.verbosity() > 0)
    else:
        _print(render(report, form))


def _print(text: str) -> None:
    """To stdout byte for byte: line endings are part of a diff, and names of files need not be UTF-8."""
    sys.stdout.flush()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.buffer.write(text.encode("utf-8", errors="surrogateescape"))
        sys.stdout.buffer.flush()
    else:
        sys.stdout.write(text)
