"""Run both arms and compare them: the two entry points of the verifier."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from fsdp_migrate.verify.model import LaunchOptions, ParityReport, VerifyRequest

if TYPE_CHECKING:
    from fsdp_migrate.verify.reference_job.model import ReferenceConfig

Progress = Callable[[str], None]


def verify_script(request: VerifyRequest, progress: Progress = lambda _line: None) -> ParityReport:
    """Run the original and the candidate of a user's script and compare them.

    Raises:
        UsageError: no baseline, no such script, a job that never steps.
        JobError: an arm died or hung; the message names the first cause.
    """
    raise NotImplementedError


def verify_reference(
    config: ReferenceConfig, launch: LaunchOptions = LaunchOptions(), progress: Progress = lambda _line: None
) -> ParityReport:
    """Run the bundled job under FSDP1 and under FSDP2, in one launch, and compare them.

    Raises:
        JobError: the job died or hung.
    """
    raise NotImplementedError
