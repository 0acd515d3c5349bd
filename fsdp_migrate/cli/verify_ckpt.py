"""`fsdp-migrate verify-ckpt DST`: is a conversion's output still what was written?"""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from fsdp_migrate.cli.places import stand_ins
from fsdp_migrate.cli.source_options import Jobs, Report, ReportFormat, default_jobs
from fsdp_migrate.exit_codes import ExitCode


def verify_ckpt(
    target: Annotated[str, typer.Argument(metavar="DST", help="What convert-ckpt wrote, or its URL.")],
    jobs: Jobs = None,
    report: Report = ReportFormat.TEXT,
) -> ExitCode:
    """Read a converted checkpoint again and compare everything with the digests in its conversion.json.

    Exits 1 where anything differs, and names it.

    Example: fsdp-migrate verify-ckpt step_5000_fsdp2/
    """
    from checkpoint_convert.destination import REPORT_NAME
    from checkpoint_convert.parallel import Workers
    from checkpoint_convert.recheck import recheck
    from fsdp_migrate.cli.transfer_bar import transfer_bar
    from fsdp_migrate.reports.conversion import human_bytes, printable

    with stand_ins() as places, transfer_bar() as progress:
        places.beside(target, f".{REPORT_NAME}")
        found = recheck(places.local(target), Workers(jobs or default_jobs()), progress)
        problems = tuple(map(places.shown, found.problems))
    if report is ReportFormat.JSON:
        answer = {
            "version": 1,
            "equal": not found.problems,
            "tensors": found.tensors,
            "values": found.values,
            "unread": found.unread,
            "size_bytes": found.size_bytes,
            "problems": problems,
        }
        print(json.dumps(answer, indent=1))
        return ExitCode.NEEDS_YOU if found.problems else ExitCode.OK
    write = printable(sys.stdout.write)
    for problem in problems:
        write(f"{problem}\n")
    verdict = "damaged" if found.problems else "as written"
    shared = f", {found.unread} more in files shared with the source, not read" if found.unread else ""
    equal = f"{found.tensors} tensors ({human_bytes(found.size_bytes)}) and {found.values} values equal"
    write(f"{target}: {verdict}; {equal}{shared}\n")
    return ExitCode.NEEDS_YOU if found.problems else ExitCode.OK
