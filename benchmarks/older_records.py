"""Records of originals made by another release of torch, compared with conversions that run under this one.

    python benchmarks/older_records.py --python OTHER/bin/python [--mutations] [--output FILE]

OTHER is an environment with an older torch and what `verify --record` needs. The FSDP1 program of the zoo
(`tests/verify/projects/zoo`) is recorded there, once for each set of options; then every right conversion is
verified here against its record, and with `--mutations` every planted mistake. A right conversion that does
not pass is a false alarm, a mistake that passes is missed. A table goes to stdout, JSON to FILE.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "verify")]

from bench import ZOO, bench  # noqa: E402
from parity_zoo import MUTATIONS, RIGHT  # noqa: E402
from resume_file import full_checkpoint  # noqa: E402

from fsdp_migrate.errors import JobError, MigrateError  # noqa: E402
from fsdp_migrate.verify.model import LaunchOptions, VerifyRequest  # noqa: E402
from fsdp_migrate.verify.run import keep_record, script_report  # noqa: E402
from fsdp_migrate.verify.started import started  # noqa: E402

Job = tuple[str, int]
"""Options of the zoo's programs, and ranks."""


def words(options: str, folder: Path) -> tuple[str, ...]:
    """The options as a command line."""
    return tuple(word.replace("CHECKPOINT", str(folder / "checkpoint.pt")) for word in options.split())


def record_all(jobs: list[Job], folder: Path) -> None:
    """Record the original of every job with the torch that runs this; what fails is written down."""
    failed: dict[str, str] = {}
    for ranks in sorted({ranks for _, ranks in jobs}):
        launch = LaunchOptions(nproc=ranks, steps=3, device="cpu", timeout_s=60.0)
        with started(launch, lambda _line: None) as run:
            for number, (options, size) in enumerate(jobs):
                if size != ranks:
                    continue
                place = folder / f"run{number}"
                (place / "records").mkdir(parents=True)
                fresh = replace(run, records=place / "records", trees=place / "trees")
                request = VerifyRequest("train_fsdp1.py", words(options, folder), cwd=ZOO)
                try:
                    keep_record(fresh, request, folder / str(number))
                except MigrateError as error:
                    failed[str(number)] = error.message.splitlines()[0]
    (folder / "failed.json").write_text(json.dumps(failed), encoding="utf-8")


def recorded_elsewhere(python: str, jobs: list[Job], folder: Path) -> dict[str, str]:
    """Have another interpreter record; jobs that its torch could not run, with the reason."""
    full_checkpoint(folder / "checkpoint.pt", with_buffers=False)
    (folder / "jobs.json").write_text(json.dumps(jobs), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [python, str(Path(__file__).resolve()), "--record-in", str(folder)]
    subprocess.run(command, env=environment, check=True)
    found: dict[str, str] = json.loads((folder / "failed.json").read_text(encoding="utf-8"))
    return found


class Comparer:
    """Runs candidates here, against the records in a folder."""

    def __init__(self, folder: Path, jobs: list[Job]) -> None:
        self.folder, self.jobs = folder, jobs

    def said(self, run: Any, job: Job, mistake: str = "", timeout_s: float = 0.0) -> dict[str, Any]:
        """The verdict on one job."""
        options = words(job[0], self.folder)
        request = VerifyRequest(
            "train_fsdp2.py",
            (*options, "--mistake", mistake) if mistake else options,
            baseline=str(self.folder / str(self.jobs.index(job))),
            cwd=ZOO,
        )
        try:
            report = script_report(run.fresh(timeout_s), request)
        except JobError as error:
            return {"how": "raises", "code": "", "words": f"{error.message}\n{error.hint}"}
        if report.died:
            ended = report.died[0]
            return {"how": "raises", "code": "", "words": f"{ended.message}\n{ended.hint}"}
        how = "fails" if not report.passed else "beware" if report.warnings else "passes"
        causes = [one.code for one in report.causes]
        wrong = [f"{one.title}: {one.detail}" for one in report.checks if one.outcome.value == "differs"]
        text = "\n".join([*(one.text for one in report.causes[:1]), *report.warnings])
        worst = max((one.relative / one.limit for one in report.largest if one.limit), default=0.0)
        return {"how": how, "code": (causes or [""])[0], "words": text, "checks": wrong, "worst": worst}


def compared(folder: Path, jobs: list[Job], failed: dict[str, str], *, mutations: bool) -> dict[str, Any]:
    """Every verdict that is not what it should be."""
    comparer = Comparer(folder, jobs)
    alarms, missed, margin, counts = [], [], 0.0, [0, 0]
    for ranks in sorted({ranks for _, ranks in jobs}):
        here = bench(folder / f"here{ranks}", ranks, project=ZOO)
        for right in (one for one in RIGHT if one.ranks == ranks):
            job = (right.options, ranks)
            if str(jobs.index(job)) in failed:
                continue
            counts[0] += 1
            said = comparer.said(here, job)
            margin = max(margin, said.get("worst", 0.0))
            if said["how"] != "passes":
                alarms.append({"options": right.options, "ranks": ranks, **said})
        for one in MUTATIONS if mutations else ():
            job = (one.options, one.ranks)
            if one.ranks != ranks or str(jobs.index(job)) in failed:
                continue
            counts[1] += 1
            mistake = "" if one.mistake == "drop-first" else one.mistake
            said = comparer.said(here, job, mistake, one.timeout_s)
            if said["how"] == "passes" or said["code"] != one.code or one.words not in said["words"]:
                missed.append({"mistake": one.mistake, "options": one.options, "wanted": one.code, **said})
    return {
        "right conversions": counts[0],
        "false alarms": alarms,
        "largest part of a limit": margin,
        "mutations": counts[1],
        "undetected": [one for one in missed if one["how"] == "passes"],
        "wrong cause": [one for one in missed if one["how"] != "passes"],
    }


def main() -> int:
    """Record there, compare here, print, write; 1 where anything was missed or raised for nothing."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--python")
    parser.add_argument("--mutations", action="store_true")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--record-in", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.record_in is not None:
        jobs = [tuple(job) for job in json.loads((options.record_in / "jobs.json").read_text())]
        record_all(jobs, options.record_in)
        return 0
    wanted = [(right.options, right.ranks) for right in RIGHT]
    if options.mutations:
        wanted += [(one.options, one.ranks) for one in MUTATIONS]
    jobs = list(dict.fromkeys(wanted))
    with tempfile.TemporaryDirectory() as folder:
        failed = recorded_elsewhere(options.python, jobs, Path(folder))
        result = compared(Path(folder), jobs, failed, mutations=options.mutations)
    result["not recorded"] = [{"options": jobs[int(at)][0], "why": why} for at, why in failed.items()]
    text = json.dumps(result, indent=2)
    print(text)
    if options.output is not None:
        options.output.write_text(text + "\n", encoding="utf-8")
    return 1 if result["false alarms"] or result["undetected"] else 0


if __name__ == "__main__":
    sys.exit(main())
