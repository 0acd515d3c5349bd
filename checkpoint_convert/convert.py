"""A conversion from contents to files: plan, check room, write, report, read back, publish."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from checkpoint_convert.destination import NO_SPACE, beside, check_free, check_space, partial_directory
from checkpoint_convert.errors import CheckpointError, DestinationError
from checkpoint_convert.job import Job
from checkpoint_convert.model import Contents
from checkpoint_convert.parallel import Workers
from checkpoint_convert.planned import Conversion, ConvertOptions, Plan, make_plan
from checkpoint_convert.progress import Progress, Silent
from checkpoint_convert.ranks import Ranks
from checkpoint_convert.source_watch import SourceWatch

if TYPE_CHECKING:
    from checkpoint_convert.reopened import Reopen

__all__ = ["Conversion", "ConvertOptions", "Plan", "SourceWatch", "convert", "jobs_for", "make_plan"]


def convert(
    contents: Contents,
    target: Path,
    options: ConvertOptions,
    *,
    reopen: Reopen,
    watch: SourceWatch | None = None,
    against: Contents | None = None,
    progress: Progress | None = None,
) -> Conversion | None:
    """Write a source's contents to `target`, which is absent or complete whatever happens.

    Args:
        reopen: opens the output for the read-back check.
        watch: the source's files as they were before `contents` was opened.
        against: a reference that the source's tensors must be equal to.

    Returns:
        What was done; None on other ranks than the first.

    Raises:
        CheckpointError: nothing was left at `target`.
        KeyboardInterrupt: likewise.
    """
    progress = progress or Silent()
    if options.write.link:  # only names are written, which rank 0 does in a moment
        if not options.ranks.is_first:
            return None
        options = replace(options, ranks=Ranks())
    ranks = options.ranks
    if ranks.is_first:
        check_free(target, overwrite=options.overwrite, sources=watch.paths if watch else ())
    plan = make_plan(contents, target, options, progress)
    job = Job(plan, options, Workers(jobs_for(plan, options)), progress, watch, reopen)
    try:
        with _system_errors(target, _left(options)):
            if not ranks.is_first:
                partial = beside(target, ".partial")
                ranks.join(partial, job.outline)
                job.write_share(partial)
                return None
            check_space(target, plan.needed_bytes)
            with partial_directory(target, keep=job.is_kept, shared=not ranks.is_alone) as partial:
                return job.write_all(partial, against)
    except BaseException as error:
        ranks.fail(error.message if isinstance(error, CheckpointError) else type(error).__name__)
        raise
    finally:
        ranks.leave()


def jobs_for(plan: Plan, options: ConvertOptions) -> int:
    """Threads that a conversion may have.

    Raises:
        UnsupportedError: `max_memory` cannot be kept.
    """
    if options.max_memory is None:
        return options.jobs
    from checkpoint_convert.laid_out import is_read_in_place
    from checkpoint_convert.memory_bound import jobs_within

    verify = options.verify and not is_read_in_place(plan.layout)
    return jobs_within(
        options.max_memory,
        plan.layout.tensors,
        plan.layout.chunk_count,
        options.jobs,
        verify=verify,
        sends=options.then is not None,
    )


def _left(options: ConvertOptions) -> str:
    """What an error leaves here, for its hint."""
    if not options.ranks.is_alone:
        return "what is finished is kept for the next run"
    return "nothing was left here" if options.then is not None else "nothing was left behind"


@contextlib.contextmanager
def _system_errors(target: Path, left: str) -> Iterator[None]:
    """What the system says, in our words.

    Args:
        left: what is left when it ends so.
    """
    try:
        yield
    except OSError as error:
        if error.errno in NO_SPACE:
            raise DestinationError(
                f"no space left while writing {target} ({error.strerror})",
                hint=f"{left}; free some space or name another destination",
            ) from error
        raise DestinationError(f"{error.filename or target}: {error.strerror or error}", hint=left) from error
