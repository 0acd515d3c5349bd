"""Every executable case: what FSDP1 did before the rewrite, FSDP2 does after it, bit for bit."""

from __future__ import annotations

import parity
import pytest
from case import all_cases

JOBS = [job for case in all_cases() for job in case.jobs()]


@pytest.fixture(scope="module")
def verdicts(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, parity.Verdict]:
    """What FSDP1 and FSDP2 did, from one launch per number of ranks for all the jobs selected."""
    wanted = {
        item.callspec.params["job"].id
        for item in request.session.items
        if getattr(item, "callspec", None) and isinstance(item.callspec.params.get("job"), parity.Job)
    }
    jobs = [job for job in JOBS if job.id in wanted]
    return parity.run_jobs(jobs, tmp_path_factory.mktemp("parity"), timeout_s=240)


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.id)
def test_fsdp2_does_what_fsdp1_did(job: parity.Job, verdicts: dict[str, parity.Verdict]) -> None:
    verdict = verdicts[job.id]
    assert verdict.errors == []
    assert verdict.differences == []
    assert verdict.compared
