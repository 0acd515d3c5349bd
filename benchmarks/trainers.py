"""Trains public trainers before and after `fsdp-migrate rewrite` and compares every loss and saved file.

    python benchmarks/trainers.py FOLDER [NAME ...] [--keep DIR]

FOLDER holds the checkouts that `corpus.json` names. `trainers/<name>.json` describes one trainer: its script
and arguments, and the file that puts a small model in the place of a download; `trainers/stubs/` stands in
for packages that only fetch data or log. The repository is copied twice and the second copy rewritten by the
program, not by hand. Both train on two CPU ranks (gloo) from the same seeds, with what `fsdp-migrate verify
--device cpu` puts in the place of a GPU.

Prints a Markdown table, with the losses below it. Exit status 1 when a loss or a saved value differs by a
bit (or by more than the trainer's stated tolerance), when no weight moved, or a run failed.
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
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from trainer_results import Arm, RunFailed, contents, differences  # noqa: E402

from fsdp_migrate.verify.launcher import free_port, rank_environment  # noqa: E402

HERE = Path(__file__).resolve().with_suffix("")
RANKS = 2
TIMEOUT_S = 400
SHOWN = 12
"""Differences listed per trainer."""
LEAVE = shutil.ignore_patterns(".git", ".fsdp-migrate", "__pycache__")


@dataclass(frozen=True, slots=True)
class Trainer:
    """One `trainers/<name>.json`.

    Attributes:
        script: path within the repository; it runs in the folder it stands in.
        folders: to be made there before the run.
        saved: files and DCP directories the trainer writes, relative to that folder; compared value by value.
        shows: which FSDP1 features the run exercises.
        preload: a file beside it, run before the script: what stands in for downloads.
        tolerance: largest difference of a loss, relative to it; 0 asks for equality to the bit.
        saved_tolerance: the same of a saved tensor, relative to its largest value.
        why: what makes a tolerance right.
    """

    name: str
    repository: str
    script: str
    arguments: list[str]
    saved: list[str]
    shows: str
    preload: str
    tolerance: float = 0.0
    saved_tolerance: float = 0.0
    why: str = ""
    folders: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Trainer:
        """Read one."""
        return cls(path.stem, **json.loads(path.read_text()))


def train(trainer: Trainer, tree: Path, scratch: Path) -> Arm:
    """Run the trainer in a copy of its repository.

    Raises:
        RunFailed: a rank failed.
    """
    script = tree / trainer.script
    for folder in trainer.folders:
        (script.parent / folder).mkdir(parents=True)
    job = {
        "script": str(script),
        "cwd": str(script.parent),
        "arguments": trainer.arguments,
        "stubs": [str(HERE / "stubs")],
        "preload": str(HERE / trainer.preload),
    }
    scratch.mkdir()
    (scratch / "job.json").write_text(json.dumps(job))
    started = time.monotonic()
    _run_ranks(scratch, trainer.environment)
    seconds = time.monotonic() - started
    told = [json.loads((scratch / f"rank{rank}.json").read_text()) for rank in range(RANKS)]
    return Arm(
        [each["losses"] for each in told],
        told[0]["steps"],
        sum(each["tensors_moved"] for each in told),
        sorted({text for each in told for text in each["substitutions"]}),
        {name: contents(script.parent / name) for name in trainer.saved},
        seconds,
    )


def _run_ranks(scratch: Path, environment: dict[str, str]) -> None:
    port = free_port()
    shared = {
        **os.environ,
        **environment,
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    command = [sys.executable, str(HERE / "rank.py"), str(scratch / "job.json")]
    logs = [scratch / f"rank{rank}.log" for rank in range(RANKS)]
    ranks = []
    try:
        for rank, log in enumerate(logs):
            own = {**shared, **rank_environment(rank, RANKS, port)}
            with log.open("wb") as out:
                ranks.append(subprocess.Popen(command, env=own, stdout=out, stderr=subprocess.STDOUT))
        until = time.monotonic() + TIMEOUT_S
        while any(rank.poll() is None for rank in ranks):
            if time.monotonic() > until or any(rank.poll() for rank in ranks):
                break
            time.sleep(0.2)
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    # A rank that ended by itself knows why; the others were ended here, because of it or of the time.
    for status, log in sorted((-rank.returncode, log) for rank, log in zip(ranks, logs, strict=True)):
        if status:
            why = f"left with {-status}" if status < 0 else f"had to be ended within {TIMEOUT_S} s"
            raise RunFailed(f"{log.stem} {why}:\n{log.read_text(errors='replace')[-3000:]}")


def compare(trainer: Trainer, checkouts: Path, scratch: Path) -> tuple[Arm, Arm]:
    """Train in a copy of the repository, and in another that the program has rewritten.

    Raises:
        RunFailed: a run or the rewrite failed.
    """
    trees = scratch / "fsdp1", scratch / "fsdp2"
    for tree in trees:
        shutil.copytree(checkouts / trainer.repository, tree, symlinks=True, ignore=LEAVE)
    done = subprocess.run(
        [sys.executable, "-m", "fsdp_migrate", "rewrite", str(trees[1])],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in (0, 1):
        raise RunFailed(f"rewrite left with {done.returncode}:\n{done.stderr[-3000:]}")
    before = train(trainer, trees[0], scratch / "run1")
    return before, train(trainer, trees[1], scratch / "run2")


def report(trainer: Trainer, before: Arm, after: Arm, found: list[str]) -> str:
    """The table's row and what stands below it."""
    saved = sum(len(leaves) for leaves in before.saved.values())
    losses = sum(map(len, before.losses))
    row = [
        trainer.name,
        trainer.script,
        trainer.shows,
        str(before.steps),
        f"{losses} on {RANKS} ranks",
        f"{saved} in {len(before.saved)} files" if saved else "none",
        _verdict(trainer, before, after, found),
        f"{before.seconds:.0f} / {after.seconds:.0f}",
    ]
    return "| " + " | ".join(row) + " |"


def _verdict(trainer: Trainer, before: Arm, after: Arm, found: list[str]) -> str:
    if found:
        return f"{len(found)} different"
    rounded = len(differences(before, after, 0.0, 0.0))
    return f"{rounded} of them within the tolerance, the rest to the bit" if rounded else "all equal"


def main() -> int:
    """Train and compare; 1 where something differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--keep", type=Path, help="keep the trees and logs in this folder")
    told = parser.parse_args()
    trainers = [Trainer.read(path) for path in sorted(HERE.glob("*.json"))]
    rows, below, failed = [], [], False
    for trainer in trainers:
        if told.names and trainer.name not in told.names:
            continue
        scratch = (told.keep or Path(tempfile.mkdtemp())) / trainer.name
        scratch.mkdir(parents=True)
        try:
            before, after = compare(trainer, told.folder.resolve(), scratch)
        except RunFailed as error:
            failed = True
            below.append(f"\n{trainer.name}: {error}")
            continue
        finally:
            if told.keep is None:
                shutil.rmtree(scratch, ignore_errors=True)
        found = differences(before, after, trainer.tolerance, trainer.saved_tolerance)
        if not before.moved or not after.moved or before.steps < 5:
            found.append(f"nothing was trained: {before.steps} steps, {before.moved} and {after.moved} moved")
        failed = failed or bool(found)
        rows.append(report(trainer, before, after, found))
        shown = " ".join(f"{float.fromhex(loss):.7g}" for loss in after.losses[0])
        below += [f"\n{trainer.name}, losses of rank 0: {shown}", *(f"- {line}" for line in found[:SHOWN])]
        if trainer.tolerance:
            allowed = f"losses {trainer.tolerance:g}, saved {trainer.saved_tolerance:g}"
            below.append(f"- tolerance ({allowed}): {trainer.why}")
        below += [f"- and {len(found) - SHOWN} more"] if len(found) > SHOWN else []
    print("| trainer | script | shows | steps | losses | saved values | FSDP1 and FSDP2 | seconds |")
    print("|" + " --- |" * 8)
    print("\n".join([*rows, *below]))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
