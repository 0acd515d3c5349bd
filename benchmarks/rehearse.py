"""Rehearses public trainers on the CPU: `rewrite` and then `verify --device cpu`, as a user would.

    python benchmarks/rehearse.py FOLDER [NAME ...] [--steps 5] [--keep DIR]

FOLDER and the trainers are those of `trainers.py`. A repository is copied and rewritten in place; beside its
script stands a starter, which puts a small model in the place of a download and then runs the
script as it is. `verify` takes the original from what `rewrite` recorded. Prints a Markdown table and the
verdicts; exit status 1 when parity does not hold or a run failed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from trainers import HERE, LEAVE, RANKS, Trainer  # noqa: E402

_TIMEOUT_S = 580
_STARTER = """\
import os, random, runpy, sys
import numpy, torch

here = os.path.dirname(os.path.abspath(__file__))
sys.path[1:1] = {stubs!r}
for folder in {folders!r}:
    os.makedirs(os.path.join(here, folder), exist_ok=True)
for seed in (torch.manual_seed, random.seed, numpy.random.seed):
    seed(0)
os.chdir(here)
runpy.run_path({preload!r})
sys.argv[0] = os.path.join(here, {script!r})
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def rehearse(trainer: Trainer, checkouts: Path, scratch: Path, steps: int) -> tuple[dict[str, Any], str]:
    """Rewrite a copy of the repository and verify it.

    Returns:
        The report (empty where there is none) and what was said.
    """
    tree = scratch / "repository"
    shutil.copytree(checkouts / trainer.repository, tree, symlinks=True, ignore=LEAVE)
    _run(["rewrite", str(tree)], scratch, {})
    script = tree / trainer.script
    starter = script.with_name("rehearse_me.py")
    starter.write_text(
        _STARTER.format(
            stubs=[str(HERE / "stubs")],
            folders=trainer.folders,
            preload=str(HERE / trainer.preload),
            script=script.name,
        )
    )
    out = scratch / "report.json"
    command = ["verify", starter.name, "--device", "cpu", "--nproc", str(RANKS), "--steps", str(steps)]
    command += ["--format", "json", "--output", str(out), "--", *trainer.arguments]
    said = _run(command, script.parent, trainer.environment)
    return (json.loads(out.read_text()) if out.exists() else {}), said


def _run(command: list[str], cwd: Path, environment: dict[str, str]) -> str:
    """Run the tool; what it said, which is no verdict where it took longer than it may."""
    try:
        done = _done(command, cwd, environment)
    except subprocess.TimeoutExpired as error:
        said = [each.decode(errors="replace") for each in (error.stdout, error.stderr) if each]
        return "".join([*said, f"\n{command[0]} took longer than {_TIMEOUT_S} s\n"])
    return done.stdout + done.stderr


def _done(command: list[str], cwd: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fsdp_migrate", *command],
        cwd=cwd,
        env={
            **os.environ,
            **environment,
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
            "TOKENIZERS_PARALLELISM": "false",
        },
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )


def main() -> int:
    """Rehearse; 1 where a verdict is no pass."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--keep", type=Path, help="keep the trees and reports in this folder")
    told = parser.parse_args()
    rows, below, failed = [], [], False
    for trainer in (Trainer.read(path) for path in sorted(HERE.glob("*.json"))):
        if told.names and trainer.name not in told.names:
            continue
        scratch = (told.keep or Path(tempfile.mkdtemp())) / trainer.name
        scratch.mkdir(parents=True)
        began = time.monotonic()
        try:
            report, said = rehearse(trainer, told.folder.resolve(), scratch, told.steps)
        finally:
            if told.keep is None:
                shutil.rmtree(scratch.parent, ignore_errors=True)
        failed = failed or not report.get("passed", False)
        seconds = time.monotonic() - began
        if not report:
            rows.append(f"| {trainer.name} | no verdict | | | | {seconds:.0f} |")
            below.append(f"\n{trainer.name}:\n{said[-3000:]}")
            continue
        compared = sum(check["compared"] for check in report["checks"] if check["numbers"])
        largest = max((check["largest_relative"] for check in report["checks"]), default=0.0)
        rows.append(
            f"| {trainer.name} | {'passes' if report['passed'] else 'FAILS'} | {report['steps']} | "
            f"{compared:,} numbers and tensors, apart by at most {largest:.1e} | "
            f"{len(report['substitutions'])} | {seconds:.0f} |"
        )
        below.append(f"\n{trainer.name}: " + "; ".join(f"Beware: {one}" for one in report["warnings"]))
        below += [f"- {cause['text']}" for cause in report["causes"]]
        if not report["passed"]:
            below += [f"- {c['title']}: {c['detail']}" for c in report["checks"] if c["outcome"] == "differs"]
    print("| trainer | verdict | steps | compared | substitutions | seconds |")
    print("|" + " --- |" * 6)
    print("\n".join([*rows, *below]))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
