"""Runs the executable cases: those of one rank count in one set of ranks, afresh after a job died.

All ranks are forked from one process that has imported torch.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fsdp_migrate.demo.ranks import RankJob
from fsdp_migrate.errors import JobError
from tests.ranks import forker

WORKER = Path(__file__).with_name("parity_worker.py")


@dataclass(frozen=True, slots=True)
class Job:
    """One run of a case; `before` and `after` hold a `train.py` with `main(out, **configuration)`."""

    id: str
    before: Path
    after: Path
    configuration: dict[str, Any]
    rtol: float = 0.0
    ranks: int = 2


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the ranks said of one job."""

    errors: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    compared: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)


def run_jobs(jobs: list[Job], scratch: Path, timeout_s: float) -> dict[str, Verdict]:
    """Verdicts by job id; a job that no rank finished has an error that says so."""
    verdicts: dict[str, Verdict] = {}
    for ranks in sorted({job.ranks for job in jobs}):
        waiting = [job for job in jobs if job.ranks == ranks]
        launch = 0
        while waiting:
            folder = scratch / f"ranks{ranks}-launch{launch}"
            said = _launch(waiting, ranks, folder, timeout_s)
            done = [job for job in waiting if job.id in said]
            for job in done:
                verdicts[job.id] = said[job.id]
            if not done:
                verdicts[waiting[0].id] = Verdict(errors=["no rank wrote a result: " + _tail(folder)])
                done = waiting[:1]
            waiting = [job for job in waiting if job not in done]
            launch += 1
    return verdicts


def _launch(jobs: list[Job], ranks: int, folder: Path, timeout_s: float) -> dict[str, Verdict]:
    folder.mkdir(parents=True)
    listing = folder / "jobs.json"
    listing.write_text(
        json.dumps(
            [{**asdict(job), "scratch": str(folder / f"job{i}")} for i, job in enumerate(jobs)], default=str
        )
    )
    with suppress(JobError):  # a rank that failed has written why, or its log is quoted
        forker().run(RankJob(str(WORKER), (str(listing), str(folder)), ranks, folder, folder, timeout_s))
    return _collect(folder, ranks)


def _collect(folder: Path, ranks: int) -> dict[str, Verdict]:
    by_job: dict[str, dict[int, dict[str, Any]]] = {}
    for rank in range(ranks):
        written = folder / f"rank{rank}.jsonl"
        for line in written.read_text(encoding="utf-8").splitlines() if written.exists() else []:
            result = json.loads(line)
            by_job.setdefault(result["job"], {})[rank] = result
    verdicts = {}
    for job, said in by_job.items():
        errors = [f"rank {rank}:\n{result['error']}" for rank, result in said.items() if "error" in result]
        errors += [
            f"rank {rank} wrote no result: {_tail(folder)}" for rank in range(ranks) if rank not in said
        ]
        verdicts[job] = Verdict(
            errors=errors,
            differences=[
                f"rank {r}: {d}" for r, result in said.items() for d in result.get("differences", [])
            ],
            compared=said.get(0, {}).get("compared", []),
            files=said.get(0, {}).get("files", []),
        )
    return verdicts


def _tail(folder: Path) -> str:
    logs = sorted(folder.glob("rank*.log"))
    return "\n".join(f"{log.name}: ...{log.read_text(errors='replace')[-1500:]}" for log in logs)
